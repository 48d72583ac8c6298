"""What counts, on every database: each event once, only where it still counts, the same in any order."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.servers.migrated import migrated_file
from tests.systems.ranking.harness import NOW, SEOUL, count
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.model import CountedEvent, CountResult, RankingPeriod, oldest_kept, windows_at
from tidegate.systems.ranking.score_store import ranking_events, ranking_scores
from tidegate.systems.ranking.settings import Board

DAY = timedelta(days=1)


@pytest.fixture
async def db(migrated_url: str) -> AsyncGenerator[Database]:
    async with await Database.open(migrated_url, clock=ManualClock(NOW)) as opened:
        yield opened


@pytest.fixture
async def lone(tmp_path: Path) -> AsyncGenerator[Database]:
    """SQLite alone, for what the others cannot do differently."""
    async with await Database.open(await migrated_file(tmp_path / "lone.db"), clock=ManualClock(NOW)) as opened:
        yield opened


async def tally(db: Database, *counts: CountedEvent, board: Board = SEOUL) -> CountResult:
    return await db.transaction(score_store.count, board, counts)


def rows_of(tx: Transaction) -> list[tuple[str, str, int]]:
    """Window, member and score of every row."""
    c = ranking_scores.c
    return sorted(tuple(row) for row in tx.execute(select(c.window_name, c.member, c.score)))


def events_of(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(ranking_events)).scalar_one()


@pytest.mark.every_server
async def test_an_event_counts_once_in_its_day_its_week_and_its_month(db: Database):
    first = await tally(db, count("a", "1"), count("b", "2", amount=3), count("a", "3", ago=DAY))
    again = await tally(db, count("a", "1"), count("a", "4"), count("a", "4"))

    assert (first.counted, first.repeated, first.late) == (3, 0, 0)
    assert (again.counted, again.repeated, again.late) == (1, 2, 0)
    assert await db.read(rows_of) == [
        *(("2025-12", "a", 3), ("2025-12", "b", 3)),
        *(("2025-12-29", "a", 1), ("2025-12-30", "a", 2), ("2025-12-30", "b", 3)),
        *(("2026-W01", "a", 3), ("2026-W01", "b", 3)),
    ]


async def test_scores_are_returned_also_for_an_event_counted_before(lone: Database):
    """Its transaction was committed, and its process died before it wrote the score to the server."""
    told = (await tally(lone, count("a", "1"))).standings

    assert (await tally(lone, count("a", "1"))).standings == told
    [standing] = told
    assert [score and (score.score, score.reached_at) for score in standing.scores] == [(1, NOW)] * 3


async def test_an_event_counts_only_in_retained_windows(lone: Database):
    """Four days ago: the day is gone, its week and its month are not. A hundred days ago, everything is."""
    result = await tally(lone, count("a", "1", ago=4 * DAY), count("a", "2", ago=100 * DAY))

    assert (result.counted, result.late) == (1, 1)
    assert await lone.read(rows_of) == [("2025-12", "a", 1), ("2025-W52", "a", 1)]
    [standing] = result.standings
    assert standing.scores[0] is None
    assert await lone.read(events_of) == 1, "what counts nowhere need not be remembered"


@pytest.mark.every_server
async def test_concurrent_counting_loses_and_repeats_nothing(db: Database):
    """Two leaders for a moment: both deliver the same events."""
    counts = [count(f"m{n % 5}", str(n)) for n in range(40)]

    results = await asyncio.gather(*(tally(db, *counts[n : n + 20]) for n in (0, 10, 20, 5, 15) for _ in range(2)))

    assert sum(result.counted for result in results) == 40
    assert {row for row in await db.read(rows_of) if row[0] == "2025-12"} == {("2025-12", f"m{n}", 8) for n in range(5)}


@pytest.mark.every_server
async def test_recounting_everything_gives_the_same_scores(db: Database):
    await tally(db, *(count(f"m{n % 3}", str(n), ago=n * DAY / 4, amount=n + 1) for n in range(30)))
    before = await db.read(_all_rows)

    await db.transaction(score_store.recount, SEOUL)

    assert await db.read(_all_rows) == before


def _all_rows(tx: Transaction) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in tx.execute(select(ranking_scores)))


@pytest.mark.every_server
async def test_a_changed_calendar_triggers_a_recount(db: Database):
    """16:00 in London is the next day in Seoul."""
    evening = CountedEvent(event_id="1", member="a", at=NOW + timedelta(hours=4))
    await tally(db, evening)
    assert ("2025-12-31", "a", 1) in await db.read(rows_of)

    london = SEOUL.model_copy(update={"timezone": "Europe/London"})
    await db.transaction(score_store.lock, london)

    assert await db.read(rows_of) == [("2025-12", "a", 1), ("2025-12-30", "a", 1), ("2026-W01", "a", 1)]
    assert (await tally(db, evening, board=london)).repeated == 1


@pytest.mark.every_server
async def test_only_expired_scores_are_deleted(db: Database):
    kept = oldest_kept(RankingPeriod.MONTHLY, NOW, SEOUL.zone).starts_at
    other = Board(name="other")
    await tally(db, count("a", "old", ago=NOW - kept + timedelta(hours=1)))  # on the last day of October
    ages = [n * DAY for n in range(0, 60, 3)]
    in_time = [count("a", str(n), ago=ago) for n, ago in enumerate(ages)]
    await tally(db, *in_time)
    await tally(db, count("a", "1"), board=other)
    later = NOW + 30 * DAY  # November and the first weeks of December are gone
    assert isinstance(db.clock, ManualClock)
    db.clock.advance(30 * DAY)

    for period in RankingPeriod:
        while await db.transaction(score_store.prune_scores, SEOUL, period):
            pass
    while await db.transaction(score_store.prune_events, SEOUL):
        pass

    left = [each for each in in_time if windows_at(each.at, SEOUL.zone)[2].kept_until > later]
    assert 0 < len(left) < len(in_time)
    assert await db.read(events_of) == len(left) + 1
    assert {row[0] for row in await db.read(rows_of)} == {"2025-12", "2025-12-30", "2026-W01"}
    assert {row[0] for row in await db.read(rows_of) if row[2] == len(left)} == {"2025-12"}
