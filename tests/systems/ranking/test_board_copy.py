"""The copy on the server, on every kind of server."""

from datetime import timedelta

import pytest

from tests.servers.valkey import leftover_keys
from tests.systems.ranking.harness import NOW, SEOUL
from tidegate.core.clock import ManualClock, milliseconds
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.board_copy import BoardCopy
from tidegate.systems.ranking.model import MemberScores, Score, windows_at

WINDOWS = windows_at(NOW, SEOUL.zone)
MINUTE = timedelta(minutes=1)


def standing(member: str, score: int, reached: timedelta) -> MemberScores:
    told = Score(member, score, NOW + reached)
    return MemberScores(WINDOWS, (told, told, told))


@pytest.fixture
async def copy(valkey: Valkey) -> BoardCopy:
    board = BoardCopy(valkey, SEOUL, ManualClock(NOW))
    await board.begin("test")
    assert await board.declare_whole("test")
    return board


async def order(copy: BoardCopy) -> list[list[tuple[str, int]]]:
    found = [await copy.top(window, 10) for window in WINDOWS]
    return [[(entry.member, entry.score) for entry in each.entries] for each in found if each is not None]


@pytest.mark.every_server
async def test_the_copy_keeps_order_time_and_place(copy: BoardCopy, valkey: Valkey):
    """All of it on each server, since starting one takes longer than the test."""
    assert await copy.put([standing("a", 2, MINUTE), standing("b", 3, 2 * MINUTE), standing("c", 2, MINUTE / 2)])
    # What is older, or told again, changes nothing; the same score is not reached a second time.
    assert await copy.put([standing("b", 2, MINUTE), standing("a", 2, MINUTE), standing("c", 2, 9 * MINUTE)])
    assert await order(copy) == [[("b", 3), ("c", 2), ("a", 2)]] * 3

    # Of equal scores, who reached it first is ahead.
    assert await copy.put([standing("a", 3, MINUTE * 1.5)])
    assert await order(copy) == [[("a", 3), ("b", 3), ("c", 2)]] * 3

    around = await copy.around(WINDOWS[1], "b", 1)
    assert around is not None
    assert [(entry.rank, entry.member) for entry in around.entries] == [(1, "a"), (2, "b"), (3, "c")]
    assert around.total == 3
    nobody = await copy.around(WINDOWS[1], "nobody", 1)
    assert nobody is not None
    assert (nobody.total, nobody.entries) == (3, [])

    lives = await leftover_keys(valkey, valkey.unit(SEOUL.name))
    assert lives.pop("ranking:epoch") is None
    for window, name in zip(WINDOWS, ("daily:2025-12-30", "weekly:2026-W01", "monthly:2025-12"), strict=True):
        kept_ms = milliseconds(window.kept_until - NOW)
        for key in (f"ranking:{name}", f"ranking:{name}:places"):
            assert kept_ms - 60_000 < (lives.pop(key) or 0) <= kept_ms
    assert lives == {}, "nothing else is left behind"


@pytest.mark.every_server
async def test_a_rebuilt_window_replaces_the_existing_one_in_one_step(copy: BoardCopy, valkey: Valkey):
    day = WINDOWS[0]
    await copy.put([standing("wrong", 9, MINUTE), standing("a", 5, MINUTE)])

    await copy.fill(day, [Score("a", 1, NOW), Score("b", 2, NOW)], builder="x")
    assert (await order(copy))[0] == [("wrong", 9), ("a", 5)], "not before it is put in place"
    for _ in range(2):  # repeated, as after a lost reply, it changes nothing
        await copy.swap(day, "x")
        assert (await order(copy))[0] == [("b", 2), ("a", 1)]

    lives = await leftover_keys(valkey, valkey.unit(SEOUL.name))
    assert [key for key in lives if "aside" in key] == []
    assert (lives["ranking:daily:2025-12-30"] or 0) > milliseconds(timedelta(days=2))
    await copy.empty(day)
    assert (await order(copy))[0] == []


@pytest.mark.every_server
async def test_replacing_a_large_window_does_not_block_the_server(copy: BoardCopy, valkey: Valkey):
    """What was there is taken apart behind the scenes, whatever the server's settings are."""
    if valkey.is_cluster:
        return  # each node tells of itself
    setting = "lazyfree-lazy-server-del"
    usual = (await valkey.execute("CONFIG", "GET", setting))[setting.encode()]
    await valkey.execute("CONFIG", "SET", setting, "no")
    many = [Score(f"member-{n}", n + 1, NOW) for n in range(600)]
    await copy.fill(WINDOWS[0], many)
    await copy.fill(WINDOWS[0], many, builder="test")
    before = await _freed_aside(valkey)

    await copy.swap(WINDOWS[0], "test")

    await valkey.execute("CONFIG", "SET", setting, usual)
    assert (await order(copy))[0][0] == ("member-599", 600)
    assert await _freed_aside(valkey) == before + 2


async def _freed_aside(valkey: Valkey) -> int:
    """How many values were taken apart by a thread of their own, or wait for that."""
    facts = await valkey.execute("INFO", "memory")
    return facts["lazyfreed_objects"] + facts["lazyfree_pending_objects"]


async def test_data_of_another_calendar_is_not_mixed_in(copy: BoardCopy, valkey: Valkey):
    """A process with the old settings may still have something to tell; the keeper makes it good from SQL."""
    assert await copy.put([standing("a", 2, MINUTE)])
    old = BoardCopy(valkey, SEOUL.model_copy(update={"timezone": "UTC"}), ManualClock(NOW))

    assert not await old.put([standing("a", 9, MINUTE), standing("b", 9, MINUTE)])

    assert await order(copy) == [[("a", 2)]] * 3


async def test_a_late_event_neither_prolongs_nor_restores_a_window(embedded: Valkey):
    clock = ManualClock(NOW)
    copy = BoardCopy(embedded, SEOUL, clock)
    await copy.put([standing("a", 1, MINUTE)])
    clock.advance(timedelta(days=2))
    await copy.put([standing("a", 2, 2 * MINUTE)])
    lives = await leftover_keys(embedded, embedded.unit(SEOUL.name))
    # Its time was set when it was created, by a clock that stood at NOW.
    assert (lives["ranking:daily:2025-12-30"] or 0) > milliseconds(WINDOWS[0].kept_until - NOW) - 60_000

    clock.advance(timedelta(days=12))
    await embedded.execute("FLUSHALL")  # by now the server would have dropped the day and the week itself
    await copy.put([standing("a", 3, 3 * MINUTE)])

    assert list(await leftover_keys(embedded, embedded.unit(SEOUL.name))) == [
        "ranking:monthly:2025-12",
        "ranking:monthly:2025-12:places",
    ]


async def test_a_copy_that_was_lost_during_its_rebuild_is_not_used(embedded: Valkey):
    copy = BoardCopy(embedded, SEOUL, ManualClock(NOW))
    await copy.begin("x")
    await embedded.execute("FLUSHALL")

    assert not await copy.declare_whole("x")
    assert not await copy.put([standing("a", 1, MINUTE)])
    assert await copy.top(WINDOWS[0], 1) is None
    assert await copy.around(WINDOWS[0], "a", 1) is None
