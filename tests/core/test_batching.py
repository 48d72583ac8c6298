"""What comes in one turn of the event loop is done together."""

import asyncio

import pytest

from tidegate.core.batching import Batcher
from tidegate.core.errors import InvalidArgument


async def test_what_comes_in_one_turn_is_one_batch_and_no_batch_is_too_large():
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


async def test_while_as_many_batches_as_may_be_are_under_way_the_next_one_grows():
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


def test_nonsense_is_refused():
    async def nothing(_: list[int]) -> None: ...

    for most, under_way in ((0, 1), (1, 0)):
        with pytest.raises(InvalidArgument):
            Batcher(nothing, most=most, under_way=under_way)
