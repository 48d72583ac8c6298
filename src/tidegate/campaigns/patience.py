"""A server that is away holds up the work on a campaign, and does not end it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidegate.runtime import patience
from tidegate.telemetry.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")


async def patiently(campaign: str, step: Callable[[], Awaitable[T]]) -> T:
    """See `runtime.patience`."""
    return await patience.patiently(
        step,
        tell_delay=lambda tries, error: log.warning(
            "campaign.work_delayed", campaign=campaign, tries=tries, error=str(error)
        ),
        tell_refusal=lambda error: log.error("campaign.work_refused", campaign=campaign, error=str(error)),
    )
