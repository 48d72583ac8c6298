"""Batching of work that is cheaper for many items at once."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

from tidegate.core.arguments import require_positive

T = TypeVar("T")


class Batcher(Generic[T]):
    """Collects items and passes them on in batches.

        batcher = Batcher(look_up_many, most=200, under_way=4)
        batcher.add(item)

    A batch starts in the next iteration of the event loop, so it contains all items of one iteration: one if the loop
    is idle, many if it is busy. While `under_way` batches run, the next one grows. Items carry their own futures;
    `work` must not raise.
    """

    def __init__(self, work: Callable[[list[T]], Awaitable[None]], *, most: int, under_way: int) -> None:
        """`most`: items in a batch; `under_way`: batches at the same time."""
        require_positive("most", most)
        require_positive("under_way", under_way)
        self._work, self._most, self._under_way = work, most, under_way
        self._items: list[T] = []
        self._is_due = False
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, item: T) -> None:
        """Add an item to the next batch."""
        self._items.append(item)
        self._plan()

    async def close(self) -> None:
        """Process all remaining items."""
        while self._items or self._tasks:
            self._begin()
            # The end of a batch lets the next one begin, so this is repeated until nothing is left.
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _plan(self) -> None:
        if self._items and not self._is_due and len(self._tasks) < self._under_way:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        while self._items and len(self._tasks) < self._under_way:
            batch, self._items = self._items[: self._most], self._items[self._most :]
            # In its own context: the batch serves all callers, so its log lines must not carry the fields of one.
            task = asyncio.create_task(self._run(batch), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._end)

    async def _run(self, batch: list[T]) -> None:
        await self._work(batch)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._plan()
