"""The characters and when they change: a function of the seed, so that nothing is stored per character.

The changes of a character are a Poisson process. Its time is cut into cells in which two changes are expected; how many
there are in a cell, and when, is drawn from the seed, the id and the number of the cell. So the state at any moment is
found by looking at one cell, rarely at a few.
"""

import struct
from bisect import bisect_right
from hashlib import blake2b
from itertools import accumulate
from math import exp, factorial

import msgspec

from tidegate_simulators.errors import NotFound
from tidegate_simulators.game.config import WorldShape
from tidegate_simulators.validation import require_at_most, require_not_negative

_LOT = 2**32
_PER_CELL = 2
_MOST_PER_CELL = 15
"""More would come once in some hundred million cells."""
_COUNTS = [round(each * _LOT) for each in accumulate(exp(-_PER_CELL) * _PER_CELL**n / factorial(n) for n in range(15))]
"""Below which lot a cell has no more than n changes."""
_VERSIONS_PER_CELL = _MOST_PER_CELL + 1
_WORDS = struct.Struct("<16I")
_SUBJECT, _CELL, _CONTENT = 1, 2, 3
_MOST_CHANGES_BY_HAND = 1_000_000
"""These are kept, since no seed knows of them."""

Lots = tuple[int, ...]
"""Sixteen numbers below 2**32, drawn from the seed."""


class State(msgspec.Struct, frozen=True, gc=False):
    """What a character is at one moment."""

    subject: int
    version: int
    """Grows with every change, though not by one."""
    changed_ms: int
    """When it became so, in ms since 1970; 0: it has always been."""
    lots: Lots
    """Random values for what never changes."""


class World:
    """Characters with the ids 1 to `shape.subjects`. Times are in ms since 1970."""

    def __init__(self, shape: WorldShape | None = None) -> None:
        self.shape = shape or WorldShape()
        tempi = self.shape.tempi
        total = sum(tempo.share for tempo in tempi)
        self._tempo_upto = [round(part / total * _LOT) for part in accumulate(tempo.share for tempo in tempi)][:-1]
        self._shortest_ms = [(tempo.every_s or 0) / tempo.spread * _PER_CELL * 1_000 for tempo in tempi]
        self._spreads = [tempo.spread**2 for tempo in tempi]
        self._missing_below = round(self.shape.missing * _LOT)
        self._subjects, self._seed = self.shape.subjects, self.shape.seed
        self._by_hand: dict[int, list[int]] = {}
        self._changes_by_hand = 0

    def exists(self, subject: int) -> bool:
        """Whether the game knows this id."""
        return 1 <= subject <= self._subjects and self._words(_SUBJECT, subject, 0)[0] >= self._missing_below

    def neighbour_of(self, subject: int) -> int:
        """The next character that exists; the same one where there is no other."""
        others = (each % self._subjects + 1 for each in range(subject, subject + self._subjects))
        return next((each for each in others if self.exists(each)), subject)

    def interval_s(self, subject: int) -> float | None:
        """The mean time between two changes of a character; None: it never changes."""
        return self._cell_ms(self._words(_SUBJECT, subject, 0)) / _PER_CELL / 1_000 or None

    def state(self, subject: int, at_ms: int) -> State | None:
        """What a character is at a moment: the same answer whenever it is asked. None: it does not exist."""
        lots = self._words(_SUBJECT, subject, 0)
        if lots[0] < self._missing_below or not 1 <= subject <= self._subjects:
            return None
        version, changed_ms = self._drawn(subject, self._cell_ms(lots), at_ms)
        if self._by_hand and subject in self._by_hand:
            moments = self._by_hand[subject]
            done = bisect_right(moments, at_ms)
            version, changed_ms = version + done, max(changed_ms, moments[done - 1] if done else 0)
        return State(subject, version, changed_ms, lots)

    def next_change(self, subject: int, after_ms: int) -> int | None:
        """The first generated change of the character after a given time; None: it never changes."""
        require_not_negative("after_ms", after_ms)
        cell_ms = self._cell_ms(self._words(_SUBJECT, subject, 0))
        if not cell_ms:
            return None
        cell, within = divmod(after_ms, cell_ms)
        while True:
            later = [moment for moment in self._moments(subject, cell, cell_ms, upto=cell_ms) if moment > within]
            if later:
                return cell * cell_ms + min(later)
            cell, within = cell + 1, -1

    def change(self, subject: int, at_ms: int) -> None:
        """Change a character on request, from a time on that is not before its last such change."""
        if not self.exists(subject):
            raise NotFound("character", subject)
        require_at_most("changes by hand", self._changes_by_hand + 1, _MOST_CHANGES_BY_HAND)
        self._changes_by_hand += 1
        moments = self._by_hand.setdefault(subject, [])
        moments.append(max(at_ms, moments[-1] if moments else 0))

    def at_version(self, subject: int, version: int) -> State:
        """A character as it was in one of its versions, whenever that was."""
        if not self.exists(subject):
            raise NotFound("character", subject)
        return State(subject, version, 0, self._words(_SUBJECT, subject, 0))

    def content(self, subject: int, version: int) -> Lots:
        """Random values for what changes with the version of a character."""
        return self._words(_CONTENT, subject, version)

    def _drawn(self, subject: int, cell_ms: int, at_ms: int) -> tuple[int, int]:
        """Version and moment of the last change that the seed knows of."""
        if not cell_ms:
            return 0, 0
        cell, within = divmod(at_ms, cell_ms)
        while cell >= 0:
            done = self._moments(subject, cell, cell_ms, upto=within)
            if done:
                return cell * _VERSIONS_PER_CELL + len(done), cell * cell_ms + max(done)
            cell, within = cell - 1, cell_ms
        return 0, 0

    def _moments(self, subject: int, cell: int, cell_ms: int, upto: int) -> list[int]:
        """When in a cell the changes are, in ms from its beginning and in no order; only those up to a moment."""
        lots = self._words(_CELL, subject, cell)
        changes = lots[1 : 1 + bisect_right(_COUNTS, lots[0])]
        return [moment for lot in changes if (moment := lot * cell_ms >> 32) <= upto]

    def _cell_ms(self, lots: Lots) -> int:
        """How long the cells of a character are; 0: it never changes."""
        tempo = bisect_right(self._tempo_upto, lots[1])
        return int(self._shortest_ms[tempo] * self._spreads[tempo] ** (lots[2] / _LOT))

    def _words(self, what: int, subject: int, number: int) -> Lots:
        return _WORDS.unpack(blake2b(b"%d %d %d %d" % (self._seed, what, subject, number)).digest())
