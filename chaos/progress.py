"""Waits of a campaign. They last as long as the machine needs, and are given up where nothing moves any more.

A time by which something has to be done says more of the machine than of what runs on it. That nothing at all happens
for a long while is a defect on every machine.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidegate.core.errors import Unavailable

_LOOK_S = 0.1
_STILL_S = 45.0
"""Longer than the longest pause of anybody who tries again, several times over."""


class Stalled(TimeoutError):
    """It did not come to what was waited for, and nothing moves; says how far it came."""


async def until(
    done: Callable[[], Awaitable[bool]],
    what: str,
    *,
    reached: Callable[[], Awaitable[int]],
    still_s: float = _STILL_S,
) -> None:
    """Wait until it is `done`; raise `Stalled` where `reached` has not been higher than ever before for `still_s`.

    A server that is away tells neither: that is no step forward, and no reason to give up at once.
    """
    loop = asyncio.get_running_loop()
    furthest, moved_at = None, loop.time()
    while True:
        with suppress(Unavailable):
            if await done():
                return
            now = await reached()
            if furthest is None or now > furthest:
                furthest, moved_at = now, loop.time()
        if loop.time() - moved_at > still_s:
            raise Stalled(f"{what}: nothing moved for {still_s:g} s, after {furthest}")
        await asyncio.sleep(_LOOK_S)
