"""Metrics of ranking."""

from prometheus_client import Counter

from tidegate.core.telemetry.metrics import REGISTRY

RANKING_EVENTS = Counter(
    "ranking_events", "Events that came to a board: counted, repeated or late.", ["board", "outcome"], registry=REGISTRY
)
RANKING_READS_DEGRADED = Counter(
    "ranking_reads_degraded", "Ranking requests that were answered empty because Valkey failed.", registry=REGISTRY
)
RANKING_REBUILT = Counter("ranking_rebuilt", "Boards that were rebuilt from SQL.", ["board"], registry=REGISTRY)
