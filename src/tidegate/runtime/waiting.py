"""Waiting for events with time limits and cancellation, and reading several parts of a view at once.

A part that cannot be read in time is left out, and the view says why.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import msgspec

from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger

T = TypeVar("T")

_HELD_UP_S = 0.05
_GRACE_S = 0.1


class StrayCancellation(Exception):
    """An awaited operation was cancelled although the awaiting task was not."""


@contextmanager
def only_our_cancellation() -> Generator[None]:
    """Let the cancellation of the current task through; raise `StrayCancellation` for any other.

    A stray cancellation would otherwise end the current task silently.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise StrayCancellation("something that was awaited here was cancelled") from error


def is_being_cancelled() -> bool:
    """Whether the current task was asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def occurs(event: asyncio.Event, *, within_s: float) -> bool:
    """Wait for `event`. Returns False if `within_s` seconds passed without it."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        # The event may have been set in the same iteration in which the time passed.
        return event.is_set()
    return True


@asynccontextmanager
async def time_limit(within_s: float, *, heard_at: Callable[[], float] | None = None) -> AsyncGenerator[None]:
    """A timeout that does not count delays of this process against the server. Raises `TimeoutError`.

    If the event loop was blocked, the timer fires late, possibly before an answer that has already arrived is read.
    Then a short extension lets it be read. `heard_at` returns when, by the clock of the loop, the server last sent
    data; the time limit counts from there.
    """
    loop = asyncio.get_running_loop()

    def set_timer(due: float) -> asyncio.TimerHandle:
        return loop.call_at(due, expire, due)

    def expire(due: float) -> None:
        nonlocal timer
        # The timer fired late: the loop was blocked, and an answer may be waiting to be read.
        if loop.time() - due > _HELD_UP_S:
            timer = set_timer(loop.time() + _GRACE_S)
        elif heard_at is not None and (later := heard_at() + within_s) > due:
            timer = set_timer(later)
        else:
            # Expires the timeout at the next iteration of the loop.
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = set_timer(loop.time() + within_s)
        try:
            yield
        finally:
            timer.cancel()


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of `events` is set."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*waits)


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`; None if `event` was set first, in which case `work` was cancelled and has ended."""
    task, interrupted = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, interrupted], return_when=asyncio.FIRST_COMPLETED)
        # If both have ended, the result counts: it must not be lost.
        return task.result() if task.done() else None
    finally:
        # Also when the caller is cancelled: no work continues in the background.
        await end(task, interrupted)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks and wait until all have ended. Their errors are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


log = get_logger(__name__)


WITHIN_S = 1.5
"""What has not answered by then is away: a request is answered within two seconds in any case."""
DATABASE, VALKEY, TRANSPORT = "the database", "Valkey", "the transport of snapshots"


class UnreadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that could not be found out."""

    part: str
    """The name of the field that is null."""
    reason: str
    """For people."""


class PartialReads:
    """One look at everything. What went wrong is in `unknown`, in the order of the parts' names."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._unknown: dict[str, str] = {}

    @property
    def unknown(self) -> list[UnreadPart]:
        """Parts that are null, and why."""
        return [UnreadPart(part=part, reason=reason) for part, reason in sorted(self._unknown.items())]

    async def read(self, where: str, look: Awaitable[T], *parts: str) -> T | None:
        """What is found; None, and `parts` are unknown, where it could not be."""
        try:
            async with asyncio.timeout(self._within_s):
                return await look
        except Exception as error:  # whatever it is, the other parts are shown
            if not isinstance(error, Unavailable | TimeoutError):
                log.error("dashboard.look_failed", parts=", ".join(parts), exc_info=error)
            self._unknown |= dict.fromkeys(parts, explain(where, error))
            return None


def explain(where: str, error: Exception) -> str:
    """Why something could not be found out, without the addresses of what is behind us."""
    match error:
        case TimeoutError():
            return f"{where} does not answer in time"
        case ServerRefused():
            return f"{where} refuses us; the log says why"
        case Unavailable():
            return f"{where} cannot be reached"
        case _:
            return "something unexpected happened; it is in the log"
