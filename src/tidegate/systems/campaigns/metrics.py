"""Metrics of campaigns, counted where the events happen or computed by `gauges.py` at scrape time."""

from prometheus_client import Counter, Gauge

from tidegate.core.telemetry.metrics import REGISTRY, from_zero

CAMPAIGN_ENTRIES = Counter(
    "campaign_entries",
    "Attempts to enter a campaign, by answer: accepted, duplicate, sold_out, not_open, busy.",
    ["answer"],
    registry=REGISTRY,
)
CAMPAIGN_PROCESSED = Counter(
    "campaign_processed",
    "Entries that were decided: issued, refused, sold_out, known (the user had been decided before).",
    ["outcome"],
    registry=REGISTRY,
)
CAMPAIGN_CONSUMER_POOLS = Gauge("campaign_consumer_pools", "Campaigns that this process serves.", registry=REGISTRY)
CAMPAIGN_CONSUMERS = Gauge("campaign_consumers", "Consumers of campaigns in this process.", registry=REGISTRY)
CAMPAIGNS_ACTIVE = Gauge("campaigns_active", "Campaigns with undecided entries or with consumers.", registry=REGISTRY)
CAMPAIGN_PENDING = Gauge("campaign_pending", "Entries of all campaigns that are not decided.", registry=REGISTRY)
CAMPAIGN_DEAD_LETTERS = Gauge("campaign_dead_letters", "Entries that became dead letters.", registry=REGISTRY)
from_zero(CAMPAIGN_ENTRIES, "accepted", "duplicate", "sold_out", "not_open", "busy")
from_zero(CAMPAIGN_PROCESSED, "issued", "refused", "sold_out", "known")
