"""A server that is away is nobody's fault: it is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from tidegate.kernel.backoff import Backoff
from tidegate.kernel.errors import ServerRefused, Unavailable
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

_RETRIES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))


async def patiently(campaign: str, step: Callable[[], Awaitable[T]]) -> T:
    """The result of `step`, which is done again until the server is back, or serves us again.

    It may have been done although it failed, so it must be one that counts once however often it is done.
    """
    tries, told = 0, ""
    while True:
        try:
            return await step()
        except (Unavailable, ServerRefused) as error:
            tries += 1
            if isinstance(error, Unavailable):
                log.warning("campaign.work_delayed", campaign=campaign, tries=tries, error=str(error))
            elif str(error) != told:  # somebody has to do something: said once, so that it is seen
                log.error("campaign.work_refused", campaign=campaign, error=str(error))
            told = str(error)
            await asyncio.sleep(_RETRIES.delay(tries).total_seconds())
