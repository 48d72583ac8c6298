"""The keys of one throttle."""

from tidegate.storage.valkey import Key, Valkey


class ThrottleKeys:
    """Where a throttle keeps what its subjects have used. Both keys expire when every allowance is complete again."""

    def __init__(self, valkey: Valkey, name: str) -> None:
        unit = valkey.unit(f"throttle:{name}")
        self.subjects: Key = unit.key("subjects")
        """zset, bounded: subject scored by the ms at which its allowance is complete again."""
        self.items: Key = unit.key("items")
        """zset, bounded: item that was counted, scored by when it is forgotten."""
