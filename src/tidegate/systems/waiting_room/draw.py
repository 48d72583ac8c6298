"""Places in the line, and the proof that the early ones were drawn fairly.

Whoever comes before the opening gets a place by lot: a hash of the room's seed and the arrival number. The SHA-256 of
the seed is public from the beginning, the seed itself after the opening; so anybody can check that it was chosen
before, and that every place follows from it:

    import hashlib
    assert hashlib.sha256(seed.encode()).hexdigest() == commitment
    lot = int(hashlib.sha1(f"{seed}:{number}".encode()).hexdigest()[:8], 16) >> 3
    assert place == -(2**53) + lot * 2**24 + number

The smallest place is first. After the opening the place is the arrival number.
"""

import hashlib
import secrets

from tidegate.core.arguments import require_whole

DRAWN = 2**24
"""So many can take part in the draw; whoever comes later than they do, and early, stands behind them."""
LOWEST = -(2**53)


def new_seed() -> str:
    """32 random bytes, in hex."""
    return secrets.token_hex(32)


def commitment_of(seed: str) -> str:
    """What is published of the seed before the opening."""
    return hashlib.sha256(seed.encode()).hexdigest()


def drawn_place(seed: str, number: int) -> int:
    """The place of somebody who came before the opening."""
    require_whole("number", number, least=1, most=DRAWN - 1)
    lot = int(hashlib.sha1(f"{seed}:{number}".encode(), usedforsecurity=False).hexdigest()[:8], 16) >> 3
    return LOWEST + lot * DRAWN + number


def number_of(place: int) -> int:
    """The arrival number that a place was given for."""
    require_whole("place", place, least=LOWEST, most=-LOWEST)
    return place if place >= 0 else (place - LOWEST) % DRAWN
