"""The outbox against a plain list that follows the same rules."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from tests.examples import examples
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.sql.schema import outbox_events

START = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


@dataclass
class Entry:
    id: int
    key: str
    attempts: int = 0
    not_before: datetime = START
    dead: bool = False


@dataclass
class Model:
    entries: list[Entry] = field(default_factory=list[Entry])

    def due(self, now: datetime) -> list[int]:
        blocked = {entry.key for entry in self.entries if not entry.dead and entry.not_before > now}
        return [entry.id for entry in self.entries if not entry.dead and entry.key not in blocked]

    def next_due(self, now: datetime) -> datetime | None:
        return min((e.not_before for e in self.entries if not e.dead and e.not_before > now), default=None)

    def dead(self) -> list[int]:
        return [entry.id for entry in self.entries if entry.dead]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.sampled_from(["remove", "bury", "replay"]), st.just(""), st.integers(0, 9)),
        st.tuples(st.just("postpone"), st.just(""), st.integers(0, 9)),
        st.tuples(st.just("advance"), st.just(""), st.integers(1, 5)),
    ),
    min_size=5,
    max_size=25,
)


@pytest.fixture
async def db(migrated_url: str) -> AsyncGenerator[Database]:
    async with await Database.open(migrated_url, clock=ManualClock(START)) as opened:
        yield opened


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(example=steps)
async def test_the_outbox_behaves_like_the_model(db: Database, example: list[tuple[str, str, int]]) -> None:
    await db.transaction(lambda tx: tx.execute(delete(outbox_events)))
    assert isinstance(db.clock, ManualClock)
    model = Model()
    for step, key, number in example:
        if step == "advance":
            db.clock.advance(timedelta(minutes=number))
        else:
            await db.transaction(_apply, model, step, key, number)
        await db.read(_compare, model)


def _apply(tx: Transaction, model: Model, step: str, key: str, number: int) -> None:
    entry = model.entries[number % len(model.entries)] if model.entries else None
    match step, entry:
        case "add", _:
            outbox.add(tx, Event("kind", key, {}))
            newest = max(row.id for row in tx.execute(outbox_events.select().order_by(outbox_events.c.id)))
            model.entries.append(Entry(newest, key))
        case "remove", Entry():
            assert outbox.remove(tx, [entry.id]) == (not entry.dead)
            if not entry.dead:
                model.entries.remove(entry)
        case "bury", Entry():
            assert outbox.mark_dead(tx, entry.id, attempts=1, error="E") == (not entry.dead)
            entry.dead = True
        case "replay", Entry():
            assert outbox.replay(tx, ids=[entry.id]) == entry.dead
            if entry.dead:
                entry.dead, entry.attempts, entry.not_before = False, 0, START
        case "postpone", Entry():
            until, counts = tx.now + timedelta(minutes=number), number % 2 == 1
            done = outbox.postpone(tx, entry.id, seen=entry.attempts, not_before=until, error="E", counts=counts)
            assert done == (not entry.dead)
            if done:
                entry.attempts, entry.not_before = entry.attempts + counts, until
        case _:
            pass  # nothing there yet


def _compare(tx: Transaction, model: Model) -> None:
    assert [row.id for row in outbox.pending_page(tx)] == model.due(tx.now)
    assert outbox.next_due(tx) == model.next_due(tx.now)
    assert [row.id for row in outbox.dead_letters(tx)] == model.dead()
    depth = outbox.depth(tx)
    assert (depth.pending, depth.dead) == (len(model.entries) - len(model.dead()), len(model.dead()))
