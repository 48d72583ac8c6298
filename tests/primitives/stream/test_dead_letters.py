from datetime import timedelta

import pytest

from tests.primitives.stream.messages import numbered, numbers
from tidegate.core.clock import ManualClock
from tidegate.core.errors import NotFound
from tidegate.primitives.stream import Stream


async def bury(stream: Stream, count: int) -> list[str]:
    """So many dead letters, numbered from 0; their ids."""
    await stream.add(numbered(range(count)))
    messages = await stream.consumer("undertaker").read(count, 0)
    await stream.fail("undertaker", [message.id for message in messages], "beyond help")
    return [letter.id for letter in (await stream.dead_letters.page(limit=1000)).letters]


async def test_a_dead_letter_has_all_facts(stream: Stream, clock: ManualClock):
    clock.advance(timedelta(days=3, milliseconds=7))
    await stream.add([{b"n": b"1", b"body": b"\xfe"}])
    consumer = stream.consumer("w")
    [message] = await consumer.read(1, 0)
    await consumer.fail(message, "völlig kaputt")
    [letter] = (await stream.dead_letters.page()).letters
    assert letter._replace(id="") == ("", message.id, {b"n": b"1", b"body": b"\xfe"}, 1, "völlig kaputt", clock.now())
    assert await stream.dead_letters.get(letter.id) == letter


async def test_a_dead_letter_contains_no_secret_and_accepts_any_reason(stream: Stream):
    await stream.add([{b"n": b"1"}])
    consumer = stream.consumer("w")
    [message] = await consumer.read(1, 0)
    await consumer.fail(message, "redis://:hunter2@host said \udcff\0")
    [letter] = (await stream.dead_letters.page()).letters
    assert letter.reason == "redis://:***@host said \\udcff"


async def test_dead_letters_are_paginated(stream: Stream):
    await bury(stream, 5)
    first = await stream.dead_letters.page(limit=2)
    second = await stream.dead_letters.page(after=first.next_after, limit=2)
    third = await stream.dead_letters.page(after=second.next_after, limit=2)
    assert [numbers(page.letters) for page in (first, second, third)] == [[0, 1], [2, 3], [4]]
    assert third.next_after is None
    assert await stream.dead_letters.count() == 5


async def test_initially_there_are_no_dead_letters(stream: Stream):
    assert await stream.dead_letters.page() == ([], None)
    assert await stream.dead_letters.count() == 0
    with pytest.raises(NotFound):
        await stream.dead_letters.get("1-1")


async def test_a_replayed_dead_letter_is_a_new_message(stream: Stream):
    letters = await bury(stream, 250)
    assert await stream.dead_letters.replay(letters[:240]) == 240
    assert await stream.dead_letters.count() == 10
    messages = await stream.consumer("w").read(1000, 0)
    assert numbers(messages) == list(range(240))
    assert {(message.deliveries, frozenset(message.fields)) for message in messages} == {(1, frozenset({b"n"}))}


async def test_a_dead_letter_is_replayed_once(stream: Stream):
    letters = await bury(stream, 2)
    assert await stream.dead_letters.replay([*letters, *letters]) == 2
    assert await stream.dead_letters.replay(letters) == 0
    assert (await stream.status()).depth == 2


async def test_a_removed_dead_letter_is_deleted(stream: Stream):
    letters = await bury(stream, 150)
    assert await stream.dead_letters.remove(letters[:149]) == 149
    assert await stream.dead_letters.remove(letters[:149]) == 0
    assert numbers((await stream.dead_letters.page()).letters) == [149]
    assert (await stream.status()).depth == 0
