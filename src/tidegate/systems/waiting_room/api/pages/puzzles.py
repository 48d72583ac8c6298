"""A hash puzzle that a browser solves before it may join a line: proof of work against scripts that join in masses.

The challenge is derived from the signed cookie of one visitor, so nothing is stored, and a solution is worth one place:

    sha256(f"{challenge}:{solution}") starts with the required number of zero bits

`solve` in puzzle.js does the same; a test compares them.
"""

import hashlib
from itertools import count

from tidegate.core.arguments import require_whole
from tidegate.systems.waiting_room.model import MOST_PUZZLE_BITS

_CHALLENGE_DIGITS = 32
LONGEST_SOLUTION = 16


def challenge_of(visitor: str) -> str:
    """The challenge for a visitor, from the value of the visitor's cookie. Short, so that one hash block suffices."""
    return hashlib.sha256(b"tidegate/puzzle/" + visitor.encode()).hexdigest()[:_CHALLENGE_DIGITS]


def is_solved(challenge: str, solution: str, bits: int) -> bool:
    """Whether a solution is correct."""
    if bits == 0:
        return True
    # Bounded before hashing, since the text comes from the client.
    if not solution.isascii() or not solution.isdigit() or len(solution) > LONGEST_SOLUTION:
        return False
    digest = hashlib.sha256(f"{challenge}:{solution}".encode()).digest()
    return int.from_bytes(digest[:4]) >> (32 - bits) == 0


def solve(challenge: str, bits: int) -> str:
    """Find a solution, for programs that join in the place of a browser."""
    require_whole("bits", bits, least=0, most=MOST_PUZZLE_BITS)
    return next(str(number) for number in count() if is_solved(challenge, str(number), bits))
