"""Metrics of waiting rooms."""

from prometheus_client import Counter, Gauge

from tidegate.core.telemetry.metrics import REGISTRY

ROOM_ADMITTED = Counter("room_admitted", "Visitors admitted to a room.", ["room"], registry=REGISTRY)
ROOM_ENDED = Counter(
    "room_ended",
    "Sessions that ended: expired, left, rolled_back (to the old place in line), dropped (from the line).",
    ["room", "outcome"],
    registry=REGISTRY,
)
ROOM_WAITING = Gauge(
    "room_waiting", "Visitors in the line of a room, as the leader last counted them.", ["room"], registry=REGISTRY
)
ROOM_THROTTLED = Counter(
    "room_throttled", "Visitors refused because too many had joined from their address.", registry=REGISTRY
)
ROOM_WATCHERS = Gauge(
    "room_watchers", "Open event streams of visitors that follow their place.", ["room"], registry=REGISTRY
)


def forget_room(room: str) -> None:
    """Remove the metrics of a room that was deleted."""
    for metric in (ROOM_ADMITTED, ROOM_ENDED, ROOM_WAITING):
        for family in metric.collect():
            for labels in {tuple(sample.labels.values()) for sample in family.samples if sample.labels["room"] == room}:
                metric.remove(*labels)
