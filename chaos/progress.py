"""Waits of a campaign. They last as long as there is progress, and fail when there is none.

A time by which something has to be done says more of the machine than of what runs on it. That nothing at all happens
for a long while is a defect on every machine.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidegate.core.errors import Unavailable

_LOOK_S = 0.1
_STILL_S = 45.0
"""Several times the longest pause between retries."""


class Stalled(TimeoutError):
    """The condition was not reached and there is no progress; has the last progress."""


async def until(
    done: Callable[[], Awaitable[bool]],
    what: str,
    *,
    reached: Callable[[], Awaitable[int]],
    still_s: float = _STILL_S,
) -> None:
    """Wait until it is `done`; raise `Stalled` where `reached` has not been higher than ever before for `still_s`.

    An unavailable server reports nothing: that is no progress, and no reason to fail at once.
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
