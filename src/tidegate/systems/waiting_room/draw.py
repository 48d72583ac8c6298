"""Places in the line, and the proof that places of early visitors were drawn fairly.

A visitor that joins before the start gets a random place: a hash of the room's seed and the arrival number. The SHA-256
of the seed is public from the beginning, the seed itself after the start. Any visitor can verify that the seed was
chosen before, and that every place follows from it:

    import hashlib
    assert hashlib.sha256(seed.encode()).hexdigest() == commitment
    lot = int(hashlib.sha1(f"{seed}:{number}".encode()).hexdigest()[:8], 16) >> 3
    assert place == -(2**53) + lot * 2**24 + number

The smallest place is first. After the start, the place is the arrival number.
"""

import hashlib
import secrets

from tidegate.core.arguments import require_whole

DRAWN = 2**24
"""Number of visitors that can take part in the draw. Visitors that join before the start but after them stand behind
them."""
LOWEST = -(2**53)


def new_seed() -> str:
    """Return 32 random bytes, in hex."""
    return secrets.token_hex(32)


def commitment_of(seed: str) -> str:
    """Return what is published of the seed before the start."""
    return hashlib.sha256(seed.encode()).hexdigest()


def drawn_place(seed: str, number: int) -> int:
    """Return the place of a visitor that joined before the start."""
    require_whole("number", number, least=1, most=DRAWN - 1)
    lot = int(hashlib.sha1(f"{seed}:{number}".encode(), usedforsecurity=False).hexdigest()[:8], 16) >> 3
    return LOWEST + lot * DRAWN + number


def number_of(place: int) -> int:
    """Return the arrival number for which a place was given."""
    require_whole("place", place, least=LOWEST, most=-LOWEST)
    return place if place >= 0 else (place - LOWEST) % DRAWN
