"""Waiting in tests: for a state or a signal, with one timeout that no working machine reaches.

A test says what it waits for, never how long that takes. How long things take is measured in `bench/`.

    async with patience():
        await event.wait()
    await until(lambda: simulator.calls >= 10)

Clocks and pauses are used through this module only (tests/architecture/test_clocks.py). Each function here is safe on a
slow machine: it waits for a state, it checks a lower bound, or it delays something that the test controls.
"""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

T = TypeVar("T")

PATIENCE_S = 60.0
"""Longer than anything takes that a test waits for, on a machine with many times more work than cores."""
WHOLE_RUN_S = 240.0
"""The same for a whole collection, which does more work than anything else in a test."""
_LOOK_EVERY_S = 0.01
_STILL_S = 0.3
"""In which something would happen that must not. A slow machine makes such a test miss a defect, and never fail."""


def patience() -> asyncio.Timeout:
    """A limit for what comes soon on any machine: whatever reaches it will not come at all."""
    return asyncio.timeout(PATIENCE_S)


async def until(holds: Callable[[], T | Awaitable[T]]) -> T:
    """What `holds` returns, once that is true; asked again and again until then."""
    async with patience():
        while True:
            value = await _value_of(holds)
            if value:
                return value
            await asyncio.sleep(_LOOK_EVERY_S)


def until_sync(holds: Callable[[], T]) -> T:
    """The same for tests without an event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {PATIENCE_S:.0f} s")
        time.sleep(_LOOK_EVERY_S)
    return value


async def look_again() -> None:
    """Between two looks at a state that nothing announces: the body of a loop that ends when the state is reached."""
    await asyncio.sleep(_LOOK_EVERY_S)


async def until_still(value: Callable[[], T | Awaitable[T]]) -> T:
    """Wait until `value` has not changed for a while, and return it. A value that follows the clock never settles."""
    async with patience():
        while True:
            before = await _value_of(value)
            await asyncio.sleep(_STILL_S)
            if await _value_of(value) == before:
                return before


async def is_pending(task: "asyncio.Future[Any]") -> bool:
    """Whether a task that is to wait for something does so, after it had a while to end."""
    await asyncio.wait([task], timeout=_STILL_S)
    return not task.done()


async def observe_absence(seconds: float = _STILL_S) -> None:
    """Pause before a check that something did not happen: in this time a defect would make it happen.

    Prefer a later signal that would overtake the unwanted effect, where there is one.
    """
    await asyncio.sleep(seconds)


@contextmanager
def lasting_at_least(seconds: float) -> Generator[None]:
    """Check that the block takes at least so long. A slow machine only makes it longer."""
    elapsed_s = stopwatch()
    yield
    assert elapsed_s() >= seconds, f"took {elapsed_s():.3f} s, expected at least {seconds} s"


def stopwatch() -> Callable[[], float]:
    """Start to measure; returns a function that returns the seconds since then.

    For bounds that grow with the time that passed (calls per second), never to be compared with a fixed upper bound.
    """
    began = time.monotonic()
    return lambda: time.monotonic() - began


async def simulated_delay(seconds: float) -> None:
    """The delay of a slow server, client or network that the test plays."""
    await asyncio.sleep(seconds)


def blocked_process(seconds: float) -> None:
    """Hold up the whole process, as a busy machine does. Nothing else runs meanwhile."""
    time.sleep(seconds)


async def until_due(milliseconds: float) -> None:
    """Wait as long as the tested code asked for, before it is called again."""
    await asyncio.sleep(milliseconds / 1000)


async def random_moment(most_s: float) -> None:
    """A pause of random length, so that what follows (a kill, a call) meets the tested code in any of its steps."""
    await asyncio.sleep(random.uniform(0, most_s))


async def _value_of(value: Callable[[], T | Awaitable[T]]) -> T:
    found = value()
    return cast("T", await found if inspect.isawaitable(found) else found)
