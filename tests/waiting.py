"""Waiting in tests: for a state or a signal, with one timeout that no working machine reaches.

A test says what it waits for, never how long that takes. How long things take is measured in `bench/`.

    async with patience():
        await event.wait()
    await until(lambda: simulator.calls >= 10)
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

PATIENCE_S = 60.0
"""Longer than anything takes that a test waits for, on a machine with many times more work than cores."""
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


async def _value_of(value: Callable[[], T | Awaitable[T]]) -> T:
    found = value()
    return cast("T", await found if inspect.isawaitable(found) else found)
