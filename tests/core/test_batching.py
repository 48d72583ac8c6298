"""What comes in one turn of the event loop is done together."""

import asyncio

import pytest

from tidegate.core.batching import Batcher
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
