"""Metrics of the crawl."""

from prometheus_client import Counter, Gauge

from tidegate.core.telemetry.metrics import REGISTRY

CRAWL_PAGES = Counter(
    "crawl_pages",
    "Parts of products that were answered: `stored` is new, `equal` and `not_modified` say what was known.",
    ["outcome"],
    registry=REGISTRY,
)
CRAWL_RAWS = Counter("crawl_raws", "Stored answers, by outcome.", ["outcome"], registry=REGISTRY)
CRAWL_RAWS_PENDING = Gauge("crawl_raws_pending", "Stored answers that are not applied yet.", registry=REGISTRY)
CRAWL_RAWS_DEAD = Gauge("crawl_raws_dead", "Stored answers that became dead letters.", registry=REGISTRY)
