"""Unique ids, sortable by creation time, and unique names of processes."""

import os
import time

_random: list[str] = []
"""Random numbers that are not used yet: many are drawn at once, since each draw is a call of the system."""
_DRAWN, _BYTES = 128, 10
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
# Otherwise a process and its child would give out the same numbers.
os.register_at_fork(after_in_child=_random.clear)


def new_id() -> str:
    """Create a UUID of version 7 (RFC 9562): 48 bits of milliseconds, then random bits."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    try:
        drawn = _random.pop()
    except IndexError:
        drawn = _draw()
    # The 7 is the version. `_VARIANT` sets the two highest bits of the fourth group to the variant.
    return f"{stamp[:8]}-{stamp[8:]}-7{drawn[:3]}-{_VARIANT[drawn[3]]}{drawn[4:7]}-{drawn[7:19]}"


def _draw() -> str:
    digits = os.urandom(_DRAWN * _BYTES).hex()
    drawn = [digits[at : at + 2 * _BYTES] for at in range(0, len(digits), 2 * _BYTES)]
    _random.extend(drawn[1:])
    return drawn[0]


def new_owner() -> str:
    """Create a name for this process: readable, and never used twice."""
    host = os.uname().nodename.split(".")[0]
    readable = "".join(c for c in host if c.isalnum() or c == "-")[:32]
    return f"{readable}.{os.getpid()}.{os.urandom(4).hex()}"
