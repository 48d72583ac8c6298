"""Metrics of GitHub's webhooks."""

from prometheus_client import Counter, Histogram

from tidegate.core.telemetry.metrics import BRIEF_S, REGISTRY

GITHUB_WEBHOOK_DELIVERIES = Counter(
    "github_webhook_deliveries",
    "Deliveries of GitHub's webhooks, by event and result: accepted, duplicate, ignored, pong or refused.",
    ["event", "result"],
    registry=REGISTRY,
)
GITHUB_WEBHOOK_DOCUMENTS = Counter(
    "github_webhook_documents", "Documents that deliveries of webhooks changed, by event.", ["event"], registry=REGISTRY
)
GITHUB_WEBHOOK_APPLY = Histogram(
    "github_webhook_apply_seconds",
    "Time from the start of applying a delivery to the commit of its documents, in seconds.",
    buckets=BRIEF_S,
    registry=REGISTRY,
)
