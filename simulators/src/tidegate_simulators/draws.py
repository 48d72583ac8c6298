"""Values that look random and are a function of their arguments: worlds are generated from these, in any order."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15


def draw(*parts: int) -> int:
    """64 bits that depend on every part and on their order."""
    state = _ODD
    for part in parts:
        state = ((state ^ part) * 0xBF58476D1CE4E5B9) & _MASK
        state ^= state >> 31
        state = (state * 0x94D049BB133111EB) & _MASK
        state ^= state >> 29
    return state


def fraction(bits: int) -> float:
    """A number in [0, 1) out of 64 bits."""
    return (bits >> 11) / (1 << 53)


def pick(options: Sequence[T], bits: int) -> T:
    """One of the options."""
    return options[bits % len(options)]
