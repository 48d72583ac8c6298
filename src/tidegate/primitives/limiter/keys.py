"""The keys of a limiter: all in one unit, since all its rules are applied in one atomic step."""

from hashlib import blake2b

from tidegate.storage.valkey import Key, Unit


class LimiterKeys:
    """Keys of one limiter, or of one key of a limiter. The size depends on rules and waiting processes, not on traffic.

    A key such as `user:42` is hashed: its text may be an address or a token, and does not appear on the server.
    """

    def __init__(self, unit: Unit, key: str = "") -> None:
        which = blake2b(key.encode(), digest_size=16).hexdigest() if key else "all"
        self.state: Key = unit.key(f"state:{which}")
        """hash: highest server time seen, end of the pause, units spent per rule."""
        self.counts: Key = unit.key(f"counts:{which}")
        """hash: `rule|slot` -> units granted in that time slot."""
        self.leaving: Key = unit.key(f"leaving:{which}")
        """zset: `rule|slot` scored by the time at which it has left every window of its rule."""
        self.waiting: Key = unit.key(f"waiting:{which}")
        """hash: `priority|owner` -> units requested, units reserved, time at which the owner asks again."""
        self.memory: Key = unit.key("memory")
        """string: since when the server has recorded grants; shared by all keys of the limiter."""
