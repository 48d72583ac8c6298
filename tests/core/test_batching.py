"""What comes in one turn of the event loop is done together."""

import asyncio
from collections.abc import Sequence

import pytest

from tidegate.core.batching import BatchedCall, Batcher
from tidegate.core.errors import InvalidArgument


async def test_items_of_one_loop_turn_form_one_batch_within_the_size_limit():
    batches: list[list[int]] = []

    async def note(batch: list[int]) -> None:
        batches.append(batch)

    batcher = Batcher(note, most=4, under_way=8)
    for n in range(10):
        batcher.add(n)
    await asyncio.sleep(0)
    batcher.add(10)
    await batcher.close()

    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10]]


async def test_items_wait_in_the_next_batch_while_all_batch_slots_are_in_use():
    batches: list[list[int]] = []
    go_on = asyncio.Event()

    async def note(batch: list[int]) -> None:
        batches.append(batch)
        await go_on.wait()

    batcher = Batcher(note, most=100, under_way=2)
    for n in range(6):
        batcher.add(n)
        await asyncio.sleep(0)  # each in a turn of its own
        await asyncio.sleep(0)
    under_way = list(batches)
    go_on.set()
    await batcher.close()

    assert under_way == [[0], [1]]
    assert batches == [[0], [1], [2, 3, 4, 5]]


def test_invalid_arguments_are_refused():
    async def nothing(_: list[int]) -> None: ...

    for most, under_way in ((0, 1), (1, 0)):
        with pytest.raises(InvalidArgument):
            Batcher(nothing, most=most, under_way=under_way)


async def test_callers_share_a_call_and_each_gets_its_result():
    calls: list[list[int]] = []
    go_on = asyncio.Event()

    async def double(items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        await go_on.wait()
        return [2 * item for item in items]

    doubled = BatchedCall(double, most=3)
    first = doubled.ask(1)
    await asyncio.sleep(0)  # the first call begins
    await asyncio.sleep(0)
    others = [doubled.ask(n) for n in range(2, 8)]
    others[0].cancel()  # this caller left meanwhile
    go_on.set()
    await doubled.close()

    assert await first == 2
    assert await asyncio.gather(*others[1:]) == [6, 8, 10, 12, 14]
    assert calls == [[1], [3, 4], [5, 6, 7]]


async def test_an_error_of_a_shared_call_reaches_its_callers_only():
    async def invert(items: Sequence[int]) -> list[float]:
        return [1 / item for item in items]

    inverted = BatchedCall(invert, most=2)
    results = await asyncio.gather(*(inverted.ask(n) for n in (1, 0, 2, 4)), return_exceptions=True)

    assert [type(each) for each in results] == [ZeroDivisionError, ZeroDivisionError, float, float]


async def test_callers_of_a_canceled_call_are_canceled():
    async def wait(items: Sequence[int]) -> list[int]:
        await asyncio.Event().wait()
        return list(items)

    waited = BatchedCall(wait, most=2)
    answered = waited.ask(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    [task] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await answered
