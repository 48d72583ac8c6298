"""The steps of a schedule; each is valid regardless of the steps before it."""

from collections.abc import Callable
from enum import IntEnum
from itertools import accumulate
from random import Random

Step = tuple[int, int]
"""A `Deed`, and a number from which its details are read."""


class ActionKind(IntEnum):
    """What a step does."""

    ASK_HIGH = 0
    ASK_LOW = 1
    PUBLISH = 2
    TAKE = 3
    GO_ON = 4
    KILL = 5
    PAUSE = 6
    REVIVE = 7
    DUPLICATE = 8
    TIME = 9
    CLOCK_BACK = 10
    FLUSH = 11
    SAVE = 12
    RESTORE = 13
    CONFIRM = 14


_WEIGHTS = {
    ActionKind.ASK_HIGH: 8,
    ActionKind.ASK_LOW: 9,
    ActionKind.PUBLISH: 15,
    ActionKind.TAKE: 22,
    ActionKind.GO_ON: 64,
    ActionKind.KILL: 3,
    ActionKind.PAUSE: 7,
    ActionKind.REVIVE: 8,
    ActionKind.DUPLICATE: 4,
    ActionKind.TIME: 8,
    ActionKind.CLOCK_BACK: 1,
    ActionKind.FLUSH: 1,
    ActionKind.SAVE: 1,
    ActionKind.RESTORE: 1,
    ActionKind.CONFIRM: 6,
}
_ACTIONS = [int(action) for action in _WEIGHTS]
_CUMULATED = list(accumulate(_WEIGHTS.values()))
SHORTEST, LONGEST = 20, 80
DETAILS = 1 << 20


def plan(seed: int, number: int) -> list[Step]:
    """The schedule of this number; always the same."""
    random = Random(seed * 1_000_000_007 + number)
    length = random.randrange(SHORTEST, LONGEST)
    details = random.getrandbits(20 * length)
    return [
        (action, details >> (20 * n) & (DETAILS - 1))
        for n, action in enumerate(random.choices(_ACTIONS, cum_weights=_CUMULATED, k=length))
    ]


def shrunk(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A shorter schedule that still fails: steps are removed, many at once and then few, until none can be removed."""
    size = max(1, len(steps) // 2)
    while True:
        start, left_out = 0, False
        while start < len(steps):
            without = steps[:start] + steps[start + size :]
            if fails(without):
                steps, left_out = without, True
            else:
                start += size
        if size == 1 and not left_out:
            return steps
        size = max(1, size // 2)
