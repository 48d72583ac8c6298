"""Builds the names of keys: `prefix:{unit}:part`.

A unit is what must be changed in one atomic step: a shard of the gate, a stream, a room, a subject. All its keys carry
the unit's name as their hash tag, so they live in one slot of a cluster and may be passed to one script. Each primitive
lists its parts once, in a class of keys.
"""

from dataclasses import dataclass

from tidegate.core.arguments import require_name


class Key(str):
    """The full name of a key; only a `Unit` makes one."""

    __slots__ = ()


@dataclass(frozen=True)
class Unit:
    """A family of keys that change together."""

    prefix: str
    name: str

    def __post_init__(self) -> None:
        require_name("prefix", self.prefix)
        require_name("unit", self.name)

    def key(self, part: str) -> Key:
        """The key of one part of this unit."""
        return Key(f"{self.prefix}:{{{self.name}}}:{require_name('part', part)}")
