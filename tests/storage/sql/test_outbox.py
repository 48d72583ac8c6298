"""The outbox as a store: what is pending, in which order, and how it ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.util import await_only

from tests.servers.migrated import migrated_on
from tests.servers.sql import SERVERS, SqlName
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event, StoredEvent
from tidegate.storage.sql.schema import outbox_events

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def db(migrated_url: str, clock: ManualClock) -> AsyncGenerator[Database]:
    async with await Database.open(migrated_url, clock=clock) as opened:
        yield opened


async def pending(db: Database, **options: Any) -> list[StoredEvent]:
    return await db.read(lambda tx: outbox.pending_page(tx, **options))


async def add(db: Database, *keys: str) -> list[int]:
    """Add one event for each key and return the ids of their rows."""
    events = [Event("kind", key, {"n": n}) for n, key in enumerate(keys)]
    await db.transaction(outbox.add, *events)
    ids = {row.event_id: row.id for row in await pending(db, limit=1000)}
    return [ids[event.event_id] for event in events]


async def test_a_committed_event_is_pending_as_it_was_added(db: Database) -> None:
    event = Event("run.completed", "run 7", {"nested": [1, "zwei", None], "nul": "\0"})
    await db.transaction(outbox.add, event)
    (row,) = await pending(db)
    assert row.event() == event
    assert (row.attempts, row.last_error) == (0, None)
    assert row.created_at == db.clock.now()


async def test_a_rolled_back_event_is_not_stored(db: Database) -> None:
    heard: list[str] = []
    db.subscribe(outbox.COMMITTED, lambda: heard.append("ring"))

    def work(tx: Transaction) -> None:
        outbox.add(tx, Event("kind", "key", {}))
        raise KeyError

    with pytest.raises(KeyError):
        await db.transaction(work)
    assert await pending(db) == []
    assert heard == []


async def test_listeners_are_notified_once_after_the_commit(db: Database) -> None:
    heard: list[str] = []
    db.subscribe(outbox.COMMITTED, lambda: heard.append("ring"))
    await db.transaction(outbox.add, Event("kind", "a", 1), Event("kind", "b", 2))
    assert heard == ["ring"]


async def test_events_are_returned_page_by_page_in_order(db: Database) -> None:
    ids = await add(db, *"abcabcabc")
    assert ids == sorted(ids)
    first = await pending(db, limit=4)
    second = await pending(db, after=first[-1].id, limit=100)
    assert [row.id for row in first + second] == ids


async def test_one_event_id_can_be_added_only_once(db: Database) -> None:
    event = Event("kind", "key", {}, event_id="the-one")
    await db.transaction(outbox.add, event)
    with pytest.raises(IntegrityError):
        await db.transaction(outbox.add, event)


async def test_a_waiting_event_blocks_only_its_own_key(db: Database, clock: ManualClock) -> None:
    first, other, second = await add(db, "a", "b", "a")
    due = clock.now() + MINUTE
    assert await db.transaction(lambda tx: outbox.postpone(tx, first, seen=0, not_before=due, error="E"))

    assert [row.id for row in await pending(db)] == [other]
    assert await db.read(outbox.next_due) == due

    clock.advance(MINUTE)
    rows = await pending(db)
    assert [row.id for row in rows] == [first, other, second]
    assert (rows[0].attempts, rows[0].last_error) == (1, "E")
    assert await db.read(outbox.next_due) is None


async def test_no_secret_of_an_error_is_stored(db: Database, clock: ManualClock) -> None:
    postponed, buried = await add(db, "a", "b")
    error = f"{'x' * 3982} redis://:hunter2@host refused"
    await db.transaction(lambda tx: outbox.postpone(tx, postponed, seen=0, not_before=clock.now(), error=error))
    await db.transaction(lambda tx: outbox.mark_dead(tx, buried, attempts=1, error=error))
    kept = [*await pending(db), *await db.read(outbox.dead_letters)]
    assert [(each.last_error or "").endswith(" redis://:***@host") for each in kept] == [True, True]


async def test_excluded_keys_are_omitted(db: Database) -> None:
    _, wanted, _ = await add(db, "a", "b", "c")
    assert [row.id for row in await pending(db, without_keys=["a", "c"])] == [wanted]


async def test_a_relay_that_lost_leadership_cannot_decrease_attempts(db: Database, clock: ManualClock) -> None:
    (row,) = await add(db, "a")

    def postpone(tx: Transaction, seen: int, counts: bool = True) -> bool:
        return outbox.postpone(tx, row, seen=seen, not_before=clock.now(), error="", counts=counts)

    assert await db.transaction(postpone, 1)
    assert not await db.transaction(postpone, 1)
    assert not await db.transaction(postpone, 0)
    assert not await db.transaction(postpone, 1, False)
    assert [each.attempts for each in await pending(db)] == [2]


async def test_an_event_can_be_postponed_without_counting_an_attempt(db: Database, clock: ManualClock) -> None:
    (row,) = await add(db, "a")
    due = clock.now() + MINUTE
    for _ in range(2):  # the second time after a commit whose outcome was unknown
        assert await db.transaction(
            lambda tx: outbox.postpone(tx, row, seen=0, not_before=due, error="away", counts=False)
        )

    assert await pending(db) == []
    clock.advance(MINUTE)
    assert [(each.attempts, each.last_error) for each in await pending(db)] == [(0, "away")]


async def test_handled_events_are_removed_in_one_statement_and_repetition_is_harmless(db: Database) -> None:
    ids = await add(db, *(f"k{n}" for n in range(700)))
    assert await db.transaction(outbox.remove, ids[1:]) == 699
    assert await db.transaction(outbox.remove, ids[1:]) == 0
    assert [row.id for row in await pending(db)] == ids[:1]


async def test_a_failed_event_is_a_dead_letter_with_its_reason(db: Database) -> None:
    buried, behind = await add(db, "a", "a")
    assert await db.transaction(lambda tx: outbox.mark_dead(tx, buried, attempts=3, error="no use" * 2000))
    assert not await db.transaction(lambda tx: outbox.mark_dead(tx, buried, attempts=3, error="again"))

    (letter,) = await db.read(outbox.dead_letters)
    assert (letter.id, letter.attempts) == (buried, 3)
    assert (letter.last_error or "").startswith("no use")
    assert [row.id for row in await pending(db)] == [behind]
    assert await db.transaction(outbox.remove, [buried]) == 0


async def test_dead_letters_are_summed_up_without_their_payloads(db: Database) -> None:
    first, _, third = await add(db, "a", "b", "c")
    for row in (first, third):
        await db.transaction(lambda tx, row=row: outbox.mark_dead(tx, row, attempts=12, error=f"{row} failed"))

    found = await db.read(outbox.dead_summaries)
    rest = await db.read(lambda tx: outbox.dead_summaries(tx, after=first, limit=1))

    assert [(one.id, one.kind, one.last_error) for one in found] == [
        (first, "kind", f"{first} failed"),
        (third, "kind", f"{third} failed"),
    ]
    assert rest == found[1:]


async def test_dead_letters_are_replayed_by_id_by_kind_or_all(db: Database) -> None:
    events = [Event(kind, "key", {}) for kind in ("x", "x", "y", "z")]
    await db.transaction(outbox.add, *events)
    ids = [row.id for row in await pending(db)]

    def bury_all(tx: Transaction) -> None:
        for row in ids:
            outbox.mark_dead(tx, row, attempts=1, error="E")

    await db.transaction(bury_all)
    heard: list[str] = []
    db.subscribe(outbox.COMMITTED, lambda: heard.append("ring"))
    assert [row.id for row in await db.read(lambda tx: outbox.dead_letters(tx, kind="y"))] == ids[2:3]
    assert [row.id for row in await db.read(lambda tx: outbox.dead_letters(tx, after=ids[0], limit=2))] == ids[1:3]

    assert await db.transaction(lambda tx: outbox.replay(tx, ids=[ids[3], 10**9])) == 1
    assert await db.transaction(lambda tx: outbox.replay(tx, kind="x")) == 2
    assert await db.transaction(lambda tx: outbox.replay(tx, everything=True)) == 1
    assert await db.transaction(lambda tx: outbox.replay(tx, everything=True)) == 0

    rows = await pending(db)
    assert [(row.id, row.attempts) for row in rows] == [(row, 0) for row in ids]
    assert heard == ["ring"] * 3


async def test_an_invalid_payload_affects_only_its_own_event(db: Database) -> None:
    spoilt, good = await add(db, "a", "b")
    damage = update(outbox_events).where(outbox_events.c.id == spoilt).values(payload=outbox_events.c.kind)
    await db.transaction(lambda tx: tx.execute(damage))
    rows = await pending(db)
    assert [row.id for row in rows] == [spoilt, good]
    with pytest.raises(ValueError):
        rows[0].event()
    assert rows[1].event().payload == {"n": 1}


async def test_once_is_true_once_per_handler(db: Database) -> None:
    assert await db.transaction(outbox.once, "mailer", "event-1")
    assert not await db.transaction(outbox.once, "mailer", "event-1")
    assert await db.transaction(outbox.once, "printer", "event-1")
    assert await db.transaction(outbox.once, "mailer", "event-2")


async def test_once_is_rolled_back_with_its_transaction(db: Database) -> None:
    def work(tx: Transaction) -> None:
        assert outbox.once(tx, "mailer", "event-1")
        raise KeyError

    with pytest.raises(KeyError):
        await db.transaction(work)
    assert await db.transaction(outbox.once, "mailer", "event-1")


async def test_once_is_true_for_one_of_concurrent_callers(db: Database) -> None:
    answers = await asyncio.gather(*(db.transaction(outbox.once, "mailer", "event-1") for _ in range(30)))
    assert sorted(answers) == [False] * 29 + [True]


async def test_depth_has_count_and_age(db: Database, clock: ManualClock) -> None:
    assert await db.read(outbox.depth) == outbox.OutboxDepth(0, 0, None)
    began = clock.now()
    first, _ = await add(db, "a", "b")
    clock.advance(MINUTE)
    await add(db, "c")
    await db.transaction(lambda tx: outbox.mark_dead(tx, first, attempts=1, error="E"))
    assert await db.read(outbox.depth) == outbox.OutboxDepth(pending=2, dead=1, oldest=began)


async def test_invalid_arguments_are_refused(db: Database, clock: ManualClock) -> None:
    for nonsense in (("", "k", "id"), ("k", "", "id"), ("k", "k", ""), ("k", " k", "id"), ("k", "k" * 201, "id")):
        with pytest.raises(InvalidArgument):
            Event(nonsense[0], nonsense[1], {}, event_id=nonsense[2])
    naive = clock.now().replace(tzinfo=None)
    refused: list[Callable[[Transaction], object]] = [
        lambda tx: outbox.add(tx, Event("k", "k", object())),
        lambda tx: outbox.add(tx, Event("k", "k", "x" * outbox.LARGEST_PAYLOAD)),
        lambda tx: outbox.pending_page(tx, after=-1),
        lambda tx: outbox.pending_page(tx, limit=0),
        lambda tx: outbox.dead_letters(tx, limit=0),
        outbox.replay,
        lambda tx: outbox.replay(tx, kind="x", everything=True),
        lambda tx: outbox.postpone(tx, 1, seen=-1, not_before=clock.now(), error=""),
        lambda tx: outbox.postpone(tx, 1, seen=0, not_before=naive, error=""),
        lambda tx: outbox.once(tx, "", "event"),
        lambda tx: outbox.once(tx, "handler", ""),
    ]
    for work in refused:
        with pytest.raises(InvalidArgument):
            await db.transaction(work)
    assert await db.read(outbox.depth) == outbox.OutboxDepth(0, 0, None)


@pytest.mark.parametrize("server_name", SERVERS)
async def test_a_lower_id_that_commits_after_a_higher_one_is_seen_by_the_next_pass(server_name: SqlName) -> None:
    """Ids are given at the insert, and become visible at the commit. (SQLite has one writer, so both are one there.)"""
    async with migrated_on(server_name) as (server, name), await Database.open(server.url(name)) as db:
        seen: list[list[str]] = []

        async def overtake() -> None:
            await db.transaction(outbox.add, Event("kind", "b", {}, event_id="higher"))
            seen.append([row.event_id for row in await pending(db)])

        def slow(tx: Transaction) -> None:
            outbox.add(tx, Event("kind", "a", {}, event_id="lower"))
            await_only(overtake())

        await db.transaction(slow)
        seen.append([row.event_id for row in await pending(db)])
        assert seen == [["higher"], ["lower", "higher"]]


async def test_untried_events_are_counted_by_kind_without_those_behind_a_failed_one(
    db: Database, clock: ManualClock
) -> None:
    added_at = clock.now()
    (failed, *_) = await add(db, "a", "a", "b", "c")
    await db.transaction(lambda tx: outbox.postpone(tx, failed, seen=0, not_before=tx.now, error="refused"))
    clock.advance(MINUTE)
    await add(db, "d")

    untried = await db.read(lambda tx: outbox.untried(tx, before=clock.now()))

    assert untried == [outbox.UntriedEvents("kind", 2, added_at)]
