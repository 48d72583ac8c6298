"""Waits that end when they should: on an event, at a time, or both."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_HELD_UP_S = 0.05
_GRACE_S = 0.1


class StrayCancellation(Exception):
    """Something we awaited was cancelled, though nobody cancelled us."""


@contextmanager
def only_our_cancellation() -> Generator[None]:
    """Let a cancellation through that is meant for this task; any other is a failure like any other.

    Otherwise it would end this task too, in silence: nobody looks for the reason of a cancellation.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise StrayCancellation("something that was awaited here was cancelled") from error


def is_being_cancelled() -> bool:
    """Whether somebody wants the running task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def occurs(event: asyncio.Event, *, within_s: float) -> bool:
    """Wait for `event`; False if `within_s` seconds passed without it."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


@asynccontextmanager
async def patience(within_s: float, *, heard_at: Callable[[], float] | None = None) -> AsyncGenerator[None]:
    """A timeout that holds nobody else to account for our own delays: raises `TimeoutError`.

    Where this process was held up, the timer comes late, and before it what has arrived meanwhile was not looked at.
    Then there is a moment more, in which it is. `heard_at` tells when, by the loop's clock, the other side last gave a
    sign of life: the time counts from there.
    """
    loop = asyncio.get_running_loop()

    def set_timer(due: float) -> asyncio.TimerHandle:
        return loop.call_at(due, expire, due)

    def expire(due: float) -> None:
        nonlocal timer
        if loop.time() - due > _HELD_UP_S:
            timer = set_timer(loop.time() + _GRACE_S)
        elif heard_at is not None and (later := heard_at() + within_s) > due:
            timer = set_timer(later)
        else:
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
    """The result of `work`; None if `event` came first, and then `work` was cancelled and has ended."""
    task, interrupted = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, interrupted], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await end(task, interrupted)


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them and wait until they have ended, however they did."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
