"""The keys of a set of timers: all in the unit of the stream that they feed, since a promotion is one atomic step."""

from tidegate.storage.valkey import Key, Unit


class TimerKeys:
    """Keys of one set of timers."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.due: Key = unit.key(f"{name}:due")
        """zset: timer id scored by its due time in ms."""
        self.payloads: Key = unit.key(f"{name}:payloads")
        """hash: timer id -> payload of its message."""
        self.wake: Key = unit.key("wake")
        """list: the wake-up of the unit, at most one token."""
