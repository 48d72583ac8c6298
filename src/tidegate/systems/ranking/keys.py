"""The keys of a board: all in the unit of its name, since a day, a week and a month are raised in one atomic step."""

from tidegate.storage.valkey import Key, Unit, Valkey
from tidegate.systems.ranking.windows import Window


class BoardKeys:
    """Where the copy of one board lives."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.epoch: Key = unit.key("ranking:epoch")
        """string: by whose calendar the copy is, once it was whole; never expires."""

    def building(self, builder: str) -> Key:
        """string: a builder is at work, and the server has not lost its data since it began; expires."""
        return self._unit.key(f"ranking:building:{builder}")

    def scores(self, window: Window) -> Key:
        """zset: place and member, scored by the plain score; expires when the window is no longer kept."""
        return self._unit.key(f"ranking:{window.period}:{window.name}")

    def places(self, window: Window) -> Key:
        """hash: member -> its place, by which it is found in the zset; expires with it."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:places")

    def aside(self, window: Window, builder: str) -> Key:
        """zset: the same while it is being made anew, by one builder."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:aside:{builder}")

    def aside_places(self, window: Window, builder: str) -> Key:
        """hash: likewise."""
        return self._unit.key(f"ranking:{window.period}:{window.name}:aside-places:{builder}")


def keeper_wake(valkey: Valkey) -> Key:
    """list: the wakeup of the keeper of all boards, rung by whoever finds that a copy is not whole."""
    return valkey.unit("ranking").key("wake")
