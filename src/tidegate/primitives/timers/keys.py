"""The keys of a set of timers: all in the unit of the stream that they feed, since a promotion is one atomic step."""

from tidegate.storage.valkey import Key, Unit


class TimerKeys:
    """Where one set of timers lives."""

    def __init__(self, unit: Unit, name: str) -> None:
        self.due: Key = unit.key(f"{name}:due")
        """zset: timer id scored by its due time in ms."""
        self.payloads: Key = unit.key(f"{name}:payloads")
        """hash: timer id -> what its message will carry."""
        self.wake: Key = unit.key("wake")
        """list: the unit's wakeup, at most one token."""
