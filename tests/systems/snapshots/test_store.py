"""The invariant on real databases: a version never decreases, and an unchanged body changes only the time."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.systems.snapshots.deployment import Deployment
from tidegate.storage.sql import Database
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.model import SnapshotSubject, unpack
from tidegate.systems.snapshots.prefetch.queries import count_subjects, prefetch_status
from tidegate.systems.snapshots.settings import PrefetchSettings
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.topics import freshness_mix

HERO, MAGE = SnapshotSubject("character", "hero"), SnapshotSubject("character", "mage")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def found(subject: SnapshotSubject, version: int, body: bytes, minutes: int = 0) -> Refreshed:
    return Refreshed.of(subject, version, checked_at=NOON + timedelta(minutes=minutes), body=body, upstream_id="u1")


def missing(subject: SnapshotSubject, version: int, minutes: int = 0) -> Refreshed:
    return Refreshed(subject=subject, version=version, checked_at=NOON + timedelta(minutes=minutes), body=None)


def failed(
    subject: SnapshotSubject, version: int | None, state: str = store.FAILED, tries: int = 3
) -> store.FailedAttempt:
    return store.FailedAttempt(
        subject=subject, state=state, version=version, reason="UPSTREAM_5XX", message="503", tries=tries
    )


async def one(database: Database, subject: SnapshotSubject) -> store.SnapshotRow:
    return (await database.read(store.get_many, [subject]))[subject]


async def test_a_new_subject_is_written_and_read_back(database: Database):
    [effect] = await database.transaction(store.write_round, [found(HERO, 5, b'{"level": 1}')])

    snapshot = await one(database, HERO)

    assert (effect.is_taken, effect.is_changed) == (True, True)
    assert (snapshot.version, snapshot.upstream_id, snapshot.size) == (5, "u1", 12)
    assert snapshot.body is not None
    assert unpack(snapshot.body) == b'{"level": 1}'
    assert snapshot.last_updated_at == snapshot.last_checked_at == NOON
    assert await database.read(store.get_many, [MAGE]) == {}


@pytest.mark.every_server
async def test_an_older_version_writes_nothing(database: Database):
    await database.transaction(store.write_round, [found(HERO, 5, b'{"level": 2}')])

    [effect] = await database.transaction(store.write_round, [found(HERO, 4, b'{"level": 1}', minutes=9)])

    snapshot = await one(database, HERO)
    assert (effect.is_taken, effect.is_changed) == (False, False)
    assert snapshot.body is not None
    assert (snapshot.version, unpack(snapshot.body)) == (5, b'{"level": 2}')
    assert snapshot.last_checked_at == NOON


async def test_an_equal_body_updates_only_the_check_time(database: Database):
    await database.transaction(store.write_round, [found(HERO, 5, b'{"level": 2}')])

    [effect] = await database.transaction(store.write_round, [found(HERO, 6, b'{"level": 2}', minutes=3)])

    snapshot = await one(database, HERO)
    assert (effect.is_taken, effect.is_changed) == (True, False)
    assert snapshot.last_updated_at == NOON
    assert snapshot.last_checked_at == NOON + timedelta(minutes=3)


async def test_of_two_simultaneous_calls_the_first_written_result_stays(database: Database):
    """So that all copies agree; and the same result counts when it is written again, found or missing."""
    other = found(HERO, 5, b'{"level": 1}', minutes=9)
    for first in (found(HERO, 5, b'{"level": 2}'), missing(MAGE, 5)):
        again = [(await database.transaction(store.write_round, [first]))[0].is_taken for _ in range(2)]
        assert again == [True, True]

    [effect] = await database.transaction(store.write_round, [other])

    snapshot = await one(database, HERO)
    assert not effect.is_taken
    assert snapshot.body is not None
    assert unpack(snapshot.body) == b'{"level": 2}'


@pytest.mark.every_server
async def test_a_failure_is_recorded_unless_a_result_as_new_has_succeeded(database: Database):
    await database.transaction(store.write_round, [found(HERO, 5, b"{}")])

    late = [failed(HERO, 4), failed(HERO, 5)]
    assert await database.transaction(store.record_failures, late) == []
    assert await database.read(store.failing_subjects) == []

    news = [failed(HERO, 6), failed(MAGE, 1)]
    assert await database.transaction(store.record_failures, [*late, *news]) == news
    assert {each[0] for each in await database.read(store.failing_subjects)} == {HERO, MAGE}
    status = (await database.read(store.read_many, [HERO, MAGE]))[MAGE].status
    assert status is not None
    assert (status.has_failed, status.message) == (True, "503")
    assert await database.read(store.get_many, [MAGE]) == {}, "nothing was ever written of it"


async def test_a_result_written_twice_changes_nothing(database: Database):
    for _ in range(2):
        await database.transaction(store.write_round, [found(HERO, 5, b'{"level": 2}')])

    snapshot = await one(database, HERO)
    assert (snapshot.version, snapshot.last_updated_at) == (5, NOON)


async def test_of_two_results_in_one_batch_the_newer_counts(database: Database):
    effects = await database.transaction(store.write_round, [found(HERO, 7, b'{"b": 1}'), found(HERO, 6, b'{"a": 1}')])

    assert [effect.is_taken for effect in effects] == [True, False]
    assert (await one(database, HERO)).version == 7


async def test_a_missing_subject_keeps_its_last_body_and_the_time_of_its_loss(database: Database):
    await database.transaction(store.write_round, [found(HERO, 5, b'{"level": 2}')])
    await database.transaction(store.write_round, [missing(HERO, 6, minutes=1)])
    await database.transaction(store.write_round, [missing(HERO, 7, minutes=2)])

    snapshot = await one(database, HERO)
    assert snapshot.body is not None
    assert snapshot.missing_since == NOON + timedelta(minutes=1)

    await database.transaction(store.write_round, [found(HERO, 8, b'{"level": 2}', minutes=3)])
    assert (await one(database, HERO)).missing_since is None


async def test_a_success_clears_the_failure(database: Database):
    await database.transaction(store.record_failures, [failed(HERO, 4, store.RETRYING, tries=1), failed(HERO, 4)])
    assert await database.read(store.failing_subjects) == [(HERO, "FAILED", "UPSTREAM_5XX", 3)]

    await database.transaction(store.write_round, [found(HERO, 5, b"{}")])
    assert await database.read(store.failing_subjects) == []


async def test_the_request_time_never_decreases(database: Database):
    await database.transaction(store.write_round, [found(HERO, 5, b"{}"), found(MAGE, 5, b"{}")])
    for minutes in (5, 3):
        at = NOON + timedelta(minutes=minutes)
        await database.transaction(store.record_reads, {HERO: at, MAGE: at, SnapshotSubject("character", "nobody"): at})

    assert (await one(database, HERO)).last_asked_at == NOON + timedelta(minutes=5)


@pytest.mark.every_server
@pytest.mark.race
async def test_a_failure_is_cleared_by_a_newer_simultaneous_success(database: Database):
    subjects = [SnapshotSubject("character", f"c{n}") for n in range(20)]

    async def fail(subject: SnapshotSubject) -> None:
        await database.transaction(store.record_failures, [failed(subject, 1)])

    async def write(subject: SnapshotSubject) -> None:
        await database.transaction(store.write_round, [found(subject, 2, b"{}")])

    await asyncio.gather(*(work(each) for each in subjects for work in (fail, write)))

    assert await database.read(store.failing_subjects) == []


@pytest.mark.every_server
@pytest.mark.race
async def test_concurrent_writers_of_one_subject_leave_the_newest(database: Database, logged: StringIO):
    """They wait for each other, in one order of the rows: no server has to end a deadlock."""
    subjects = [SnapshotSubject("character", f"c{n}") for n in range(5)]

    async def write(version: int) -> None:
        some = subjects if version % 2 else subjects[::-1]
        await database.transaction(store.write_round, [found(each, version, b"%d" % version) for each in some])

    await asyncio.gather(*map(write, range(1, 41)))

    kept = await database.read(store.get_many, subjects)
    assert {(each.version, unpack(each.body or b"")) for each in kept.values()} == {(40, b"40")}
    assert "database.transaction_retried" not in logged.getvalue()


async def test_no_statement_scans_the_whole_table(deployment: Deployment, tmp_path: Path):
    """There may be millions of subjects; SQLite says beforehand what it is going to do."""
    said: list[tuple[str, Sequence[Any]]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, executemany: bool) -> None:
        said.append((statement, parameters[0] if executemany else parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        await deployment.database.transaction(store.write_round, [found(HERO, 5, b"{}"), found(MAGE, 5, b"{}")])
        await deployment.database.transaction(store.write_round, [found(HERO, 6, b"{}"), found(MAGE, 6, b"[]")])
        await deployment.database.read(store.get_many, [HERO, MAGE])
        await deployment.database.read(store.read_many, [HERO, MAGE])
        await deployment.database.transaction(store.record_reads, {HERO: NOON})
        await deployment.database.read(freshness_mix, {"character": timedelta(hours=1)}, 1000, 2**30)
        await deployment.database.read(prefetch_status, PrefetchSettings(), True)
        await deployment.database.read(count_subjects, PrefetchSettings(), 2, 0)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    with closing(sqlite3.connect(tmp_path / "tidegate.db")) as database:
        plans = {
            statement: [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            for statement, parameters in said
            if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))
        }

    assert len(plans) >= 7
    assert {statement for statement, steps in plans.items() if any("SCAN snapshot" in step for step in steps)} == set()
