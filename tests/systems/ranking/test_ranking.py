"""The ranking as its users meet it: events in, rankings out, whatever the servers do meanwhile."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.servers.valkey import ValkeyServer
from tests.systems.ranking.harness import NOW, SEOUL, RankingHarness, count, event, expected, standing
from tests.waiting import patience
from tidegate.core.clock import milliseconds
from tidegate.core.errors import InvalidArgument, NotFound, ValkeyUnavailable
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.delivery import Undeliverable
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.board_copy import BoardCopy, RankingRetention
from tidegate.systems.ranking.event_counter import EventCounter
from tidegate.systems.ranking.model import CountedEvent, CountResult, RankingPeriod, Window, windows_at
from tidegate.systems.ranking.settings import Board, RankingSettings

MINUTE = timedelta(minutes=1)


async def test_members_are_ranked_by_score_and_ties_by_the_earlier_event(harness: RankingHarness):
    counts = [
        *(count("a", "1", ago=9 * MINUTE), count("b", "2", ago=8 * MINUTE), count("c", "3", ago=7 * MINUTE)),
        *(count("b", "4", ago=6 * MINUTE), count("a", "5", ago=5 * MINUTE), count("d", "6", amount=2)),
    ]
    await harness.deliver(*counts)

    assert await harness.shown() == [("b", 2), ("a", 2), ("d", 2), ("c", 1)]
    for period in RankingPeriod:
        assert await harness.shown(period) == expected(counts, SEOUL, period, NOW)


async def test_the_ranking_does_not_depend_on_the_order_of_events(harness: RankingHarness):
    """b reached two at the 6th minute before now, and a only at the 5th, though both events of a came first."""
    await harness.deliver(count("a", "5", ago=5 * MINUTE), count("a", "1", ago=9 * MINUTE))
    await harness.deliver(count("b", "4", ago=6 * MINUTE), count("b", "2", ago=8 * MINUTE))

    assert await harness.shown() == [("b", 2), ("a", 2)]


async def test_a_member_finds_its_place_and_its_neighbours(harness: RankingHarness):
    await harness.deliver(*(count(f"m{n}", str(n), amount=10 - n) for n in range(9)))

    place = await harness.ranking.around("concerts", "m4", neighbours=2)
    first = await harness.ranking.around("concerts", "m0", RankingPeriod.WEEKLY, neighbours=1)
    alone = await harness.ranking.around("concerts", "m8", RankingPeriod.MONTHLY, neighbours=0)
    nobody = await harness.ranking.around("concerts", "nobody")

    assert (place.rank, place.score, place.total) == (5, 6, 9)
    assert [(entry.rank, entry.member) for entry in place.around] == [(n + 1, f"m{n}") for n in range(2, 7)]
    assert [entry.member for entry in first.around] == ["m0", "m1"]
    assert [(entry.rank, entry.member) for entry in alone.around] == [(9, "m8")]
    assert (nobody.rank, nobody.score, nobody.total, nobody.degraded) == (None, None, 9, False)
    top = await harness.ranking.top("concerts", limit=3)
    assert ([entry.member for entry in top.entries], top.total) == (["m0", "m1", "m2"], 9)


async def test_yesterday_can_be_read_by_its_date_and_expired_windows_are_empty(harness: RankingHarness):
    await harness.deliver(count("a", "1", ago=timedelta(days=1)), count("b", "2"))

    assert await harness.shown(on=NOW - timedelta(days=1)) == [("a", 1)]
    assert await harness.shown(on=NOW - timedelta(days=300)) == []
    assert await harness.shown(RankingPeriod.WEEKLY) == [("a", 1), ("b", 1)]


async def test_concurrent_events_share_a_transaction(harness: RankingHarness, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []

    def counting(tx: score_store.Transaction, board: Board, counts: list[CountedEvent]) -> CountResult:
        sizes.append(len(counts))
        return original(tx, board, counts)

    original = score_store.count
    monkeypatch.setattr(score_store, "count", counting)
    [handler] = harness.ranking.handlers
    await asyncio.gather(*(handler.handle(event(count(f"m{n % 3}", str(n)))) for n in range(64)))

    assert sum(sizes) == 64
    assert len(sizes) <= 3
    assert sum(score for _, score in await harness.shown()) == 64


async def test_an_unwritable_event_affects_no_other(harness: RankingHarness, monkeypatch: pytest.MonkeyPatch):
    def refusing(tx: score_store.Transaction, board: Board, counts: list[CountedEvent]) -> CountResult:
        if any(each.member == "bad" for each in counts):
            raise ValueError("not this one")
        return original(tx, board, counts)

    original = score_store.count
    monkeypatch.setattr(score_store, "count", refusing)
    [handler] = harness.ranking.handlers
    told = await asyncio.gather(
        *(handler.handle(event(count(member, str(n)))) for n, member in enumerate(["a", "bad", "b", "c"])),
        return_exceptions=True,
    )

    assert [type(each) for each in told] == [type(None), ValueError, type(None), type(None)]
    assert {member for member, _ in await harness.shown()} == {"a", "b", "c"}


async def test_a_cancelled_counter_leaves_the_waiting_events_to_the_next(
    harness: RankingHarness, monkeypatch: pytest.MonkeyPatch
):
    under_way = asyncio.Event()

    async def held_up(counter: EventCounter, counts: Sequence[CountedEvent]) -> None:
        if len(counts) > 1 and not under_way.is_set():
            under_way.set()
            await asyncio.Event().wait()
        await original(counter, counts)

    original = EventCounter._count  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(EventCounter, "_count", held_up)
    [handler] = harness.ranking.handlers
    counting = [asyncio.ensure_future(handler.handle(event(count("a", str(n))))) for n in range(5)]
    async with patience():
        await under_way.wait()  # the first was alone; the second counts for all others
        counting[1].cancel()
        ended = await asyncio.gather(*counting, return_exceptions=True)

    assert [type(each) for each in ended] == [type(None), asyncio.CancelledError, *[type(None)] * 3]
    assert await harness.shown() == [("a", 5)]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([], "no object"),
        ({"event_id": "1", "time": NOW.isoformat()}, "member is '': must not be empty"),
        ({"member": True, "event_id": "1", "time": NOW.isoformat()}, "member is '': must not be empty"),
        ({"member": "a" * 201, "event_id": "1", "time": NOW.isoformat()}, "must have at most 200"),
        ({"member": "a", "time": NOW.isoformat()}, "'event_id' must be"),
        ({"member": "a", "event_id": "1"}, "must be a time"),
        ({"member": "a", "event_id": "1", "time": "yesterday"}, "must be a time"),
        ({"member": "a", "event_id": "1", "time": "2025-12-30T12:00:00"}, "time zone"),
        ({"member": "a", "event_id": "1", "time": (NOW + timedelta(days=2)).isoformat()}, "ahead"),
        ({"member": "a", "event_id": "1", "time": NOW.isoformat(), "amount": 0}, "from 1"),
        ({"member": "a", "event_id": "1", "time": NOW.isoformat(), "amount": 1.5}, "from 1"),
    ],
)
async def test_an_event_without_the_counted_fields_is_undeliverable(harness: RankingHarness, payload: object, why: str):
    [handler] = harness.ranking.handlers
    with pytest.raises(Undeliverable, match=why):
        await handler.handle(Event("ranking.counted", "k", payload))
    assert await harness.stored() == []


async def test_two_unicode_forms_of_a_member_are_one_member(harness: RankingHarness):
    [handler] = harness.ranking.handlers
    for number, member in enumerate((" \uff21da", "Ada")):
        payload = {"member": member, "event_id": str(number), "time": NOW.isoformat()}
        await handler.handle(Event("ranking.counted", "k", payload))

    assert await harness.shown() == [("Ada", 2)]
    assert (await harness.ranking.around("concerts", "\uff21da ")).score == 2
    with pytest.raises(InvalidArgument):
        await harness.ranking.around("concerts", "a\x00")


async def test_one_event_can_count_on_several_boards_under_different_names(embedded: Valkey, tmp_path: Path):
    given = {"event": "PaymentCompleted", "id": "payment", "time": "paid_at"}
    concerts = Board(name="concerts", member="concert", **given)
    venues = Board(name="venues", member="venue", timezone="Europe/Berlin", amount="seats", **given)
    async with standing(await migrated_file(tmp_path / "tidegate.db"), embedded, concerts, venues) as harness:
        await harness.ranking.rebuild("venues")
        [handler] = harness.ranking.handlers
        assert handler.kind == "PaymentCompleted"
        payload = {"payment": 77, "concert": 5, "venue": "Arena", "seats": 3, "paid_at": NOW.isoformat()}
        for _ in range(2):
            await handler.handle(Event("PaymentCompleted", "5", payload))

        tops = [await harness.ranking.top(name) for name in ("concerts", "venues")]

    assert [[(each.member, each.score) for each in top.entries] for top in tops] == [[("5", 1)], [("Arena", 3)]]


async def test_an_event_unreadable_for_one_board_counts_on_the_others(embedded: Valkey, tmp_path: Path):
    """It is buried for the one, where somebody finds it; delivered again, it counts once all the same."""
    boards = [Board(name=name, event="PaymentCompleted", member=name) for name in ("artists", "concerts", "venues")]
    async with standing(await migrated_file(tmp_path / "tidegate.db"), embedded, *boards) as harness:
        for board in boards:
            await harness.ranking.rebuild(board.name)
        [handler] = harness.ranking.handlers
        payload = {"event_id": "1", "artists": "A", "venues": "Arena", "time": NOW.isoformat()}
        for _ in range(2):
            with pytest.raises(Undeliverable, match="concerts is '': must not be empty"):
                await handler.handle(Event("PaymentCompleted", "5", payload))

        tops = [await harness.ranking.top(board.name) for board in boards]

    assert [[(each.member, each.score) for each in top.entries] for top in tops] == [[("A", 1)], [], [("Arena", 1)]]


async def test_a_crash_between_sql_and_valkey_is_repaired_by_the_next_delivery(harness: RankingHarness):
    await harness.database.transaction(score_store.count, SEOUL, [count("a", "1")])
    assert await harness.shown() == []

    await harness.deliver(count("a", "1"))

    assert await harness.shown() == [("a", 1)]


async def test_a_loss_of_data_is_detected_by_readers_and_repaired_by_the_leader(harness: RankingHarness):
    await harness.deliver(count("a", "1"), count("b", "2", amount=2))
    before = await harness.shown()
    await harness.valkey.execute("FLUSHALL")
    bell = Wakeup(harness.valkey, harness.valkey.unit("ranking").key("wake"))

    await harness.deliver(count("b", "3"))
    assert await bell.wait(60), "who counts calls the keeper"
    top, place = await harness.ranking.top("concerts"), await harness.ranking.around("concerts", "b")
    assert (top.degraded, top.entries, place.degraded, place.rank) == (True, [], True, None)
    assert await bell.wait(60), "who reads calls the keeper"

    await harness.keeper.fire()
    assert await harness.shown() == [(member, score + (member == "b")) for member, score in before]


async def test_a_new_leader_restores_the_last_writes_that_the_server_lost(harness: RankingHarness):
    await harness.database.transaction(score_store.count, SEOUL, [count("a", "1")])
    await harness.keeper.fire()
    assert await harness.shown() == [], "nothing speaks for a loss, so nothing is read from SQL"

    harness.keeper.begin()
    await harness.keeper.fire()
    assert await harness.shown() == [("a", 1)]

    await harness.database.transaction(score_store.count, SEOUL, [count("a", "2")])
    harness.valkey.losses += 1  # it was away, and may have come back without its last moments
    await harness.keeper.fire()
    assert await harness.shown() == [("a", 2)]


async def test_a_rebuild_counts_everything_again_and_removes_wrong_scores(harness: RankingHarness):
    await harness.deliver(count("a", "1"), count("b", "2"), count("a", "3", ago=timedelta(days=5)))
    before = [await harness.shown(period) for period in RankingPeriod]
    await harness.copy.fill(windows_at(NOW, SEOUL.zone)[0], [score_store.Score("ghost", 99, NOW)])
    assert (await harness.shown())[0] == ("ghost", 99)

    rebuilt = await harness.ranking.rebuild("concerts")

    assert (rebuilt.windows, rebuilt.members) == (4, 7)
    assert [await harness.shown(period) for period in RankingPeriod] == before


async def test_events_counted_during_a_rebuild_are_not_lost(harness: RankingHarness, monkeypatch: pytest.MonkeyPatch):
    """It goes to the old window, right before the new one takes its place."""
    await harness.deliver(count("a", "1"))

    async def swap(copy: BoardCopy, window: Window, builder: str) -> None:
        await harness.deliver(count("late", window.period))
        await original(copy, window, builder)

    original = BoardCopy.swap
    monkeypatch.setattr(BoardCopy, "swap", swap)
    await harness.ranking.rebuild("concerts")

    assert [await harness.shown(period) for period in RankingPeriod] == [[("late", 3), ("a", 1)]] * 3


async def test_a_changed_time_zone_triggers_a_rebuild(harness: RankingHarness):
    evening = CountedEvent(event_id="1", member="a", at=NOW + timedelta(hours=4))
    await harness.deliver(evening)
    moved = SEOUL.model_copy(update={"timezone": "Europe/London"})
    elsewhere = RankingHarness(harness.database, harness.valkey, harness.clock, moved)

    assert (await elsewhere.ranking.top("concerts")).degraded
    await elsewhere.keeper.fire()

    assert await elsewhere.shown() == [("a", 1)]
    assert await elsewhere.shown(on=NOW + timedelta(days=1)) == []


async def test_expired_scores_are_deleted_daily(harness: RankingHarness):
    pruner = RankingRetention(harness.database, {SEOUL.name: SEOUL})
    await harness.deliver(*(count("a", str(days), ago=timedelta(days=days)) for days in range(5)))
    before = await harness.stored()
    day_ms = milliseconds(timedelta(days=1))

    assert 0 < (await pruner.fire() or 0) <= day_ms
    assert await harness.stored() == before

    harness.clock.advance(timedelta(days=100))
    assert 0 < (await pruner.fire() or 0) <= day_ms, "not before the day is over"
    assert await harness.stored() == before
    await RankingRetention(harness.database, {SEOUL.name: SEOUL}).fire()
    assert await harness.stored() == []


async def test_without_the_server_the_ranking_is_empty_and_marked_degraded(tmp_path: Path):
    url = await migrated_file(tmp_path / "tidegate.db")
    with ValkeyServer() as server:
        async with connected(server.url) as valkey, standing(url, valkey) as harness:
            await harness.deliver(count("a", "1"))
            server.stop()

            top, place = await harness.ranking.top("concerts"), await harness.ranking.around("concerts", "a")
            with pytest.raises(ValkeyUnavailable):  # the event stays in the outbox
                await harness.deliver(count("a", "2"))

            assert (top.degraded, top.entries, top.total) == (True, [], 0)
            assert (place.degraded, place.rank, place.around) == (True, None, [])
            assert [row[4] for row in await harness.stored()] == [2, 2, 2], "it is counted all the same"


async def test_invalid_arguments_are_refused(harness: RankingHarness):
    with pytest.raises(NotFound, match="there is no board 'x'"):
        await harness.ranking.top("x")
    with pytest.raises(NotFound):
        await harness.ranking.rebuild("x")
    for limit in (0, 1001):
        with pytest.raises(InvalidArgument, match="limit"):
            await harness.ranking.top("concerts", limit=limit)
    with pytest.raises(InvalidArgument, match="neighbours"):
        await harness.ranking.around("concerts", "a", neighbours=-1)
    for wrong in ({"name": "A b"}, {"name": "a", "timezone": "Mars/Olympus"}, {"name": ""}, {"name": "a", "x": 1}):
        with pytest.raises(ValueError):
            Board.model_validate(wrong)
    with pytest.raises(ValueError, match="one name"):
        RankingSettings(boards=(SEOUL, SEOUL))
