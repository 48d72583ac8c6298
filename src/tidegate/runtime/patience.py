"""A server that is away is nobody's fault: it is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from tidegate.kernel.backoff import Backoff
from tidegate.kernel.errors import ServerRefused, Unavailable

T = TypeVar("T")

_RETRIES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5), jitter=0.5)


async def patiently(
    step: Callable[[], Awaitable[T]],
    *,
    tell_delay: Callable[[int, Unavailable], object],
    tell_refusal: Callable[[ServerRefused], object],
) -> T:
    """The result of `step`, which is done again until the server is back, or serves us again.

    It may have been done although it failed, so it must be one that counts once however often it is done.
    """
    tries, told = 0, ""
    while True:
        try:
            return await step()
        except Unavailable as error:
            tries, told = tries + 1, str(error)
            if not error.is_reported:
                tell_delay(tries, error)
        except ServerRefused as error:
            tries += 1
            if str(error) != told:  # somebody has to do something: said once, so that it is seen
                tell_refusal(error)
            told = str(error)
        await asyncio.sleep(_RETRIES.delay(tries).total_seconds())
