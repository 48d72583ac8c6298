"""Batching of work that is cheaper for many items at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

from tidegate.core.arguments import require_positive

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


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


class BatchedCall(Generic[Item, Result]):
    """Sends the items of many callers to a function that takes a list, and returns to each caller its result.

        reads = BatchedCall(read_all, most=500)
        standing = await reads.ask("ada")

    Items that arrive during a call are sent together with the next one.
    """

    def __init__(
        self, call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, most: int, under_way: int = 1
    ) -> None:
        """`call` returns one result per item, in order. Its error is raised to all callers of the batch."""
        self._call = call
        self._batcher = Batcher(self._answer, most=most, under_way=under_way)

    def ask(self, item: Item) -> asyncio.Future[Result]:
        """Send an item with the next call; the future is completed with its result."""
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._batcher.add((item, answered))
        return answered

    async def close(self) -> None:
        """Send all remaining items."""
        await self._batcher.close()

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        """Send a batch, and pass each result or the error to its caller."""
        # A caller that was cancelled meanwhile does not need its result.
        batch = [(item, answered) for item, answered in batch if not answered.done()]
        if not batch:
            return
        try:
            results = await self._call([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, answered in batch:
                answered.cancel()
            raise
        except Exception as error:  # every caller must be answered, whatever the error is
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(error)
        else:
            for (_, answered), result in zip(batch, results, strict=True):
                if not answered.done():
                    answered.set_result(result)
