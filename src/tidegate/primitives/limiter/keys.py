"""The keys of a limiter: all in one unit, since all its rules are applied in one atomic step."""

from tidegate.storage.valkey import Key, Unit


class LimiterKeys:
    """Where one limiter lives. Its size depends on its rules and on how many processes wait, not on its traffic."""

    def __init__(self, unit: Unit) -> None:
        self.state: Key = unit.key("state")
        """hash: the clock's high-water mark, the end of the pause, what is spent of each rule."""
        self.counts: Key = unit.key("counts")
        """hash: `rule|slot` -> units granted in that slot of time."""
        self.leaving: Key = unit.key("leaving")
        """zset: `rule|slot` scored by the moment when it has left every window of its rule."""
        self.waiting: Key = unit.key("waiting")
        """hash: `priority|owner` -> units still wanted, units promised, when the owner comes back."""
