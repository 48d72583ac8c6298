"""Metrics of the link checker, at `/metrics` with all others."""

from prometheus_client import Counter

from tidegate.core.telemetry.metrics import REGISTRY, from_zero

LINKS_CHECKED = Counter("links_checked", "Links that were checked: answered or not.", ["outcome"], registry=REGISTRY)
from_zero(LINKS_CHECKED, "answered", "failed")
