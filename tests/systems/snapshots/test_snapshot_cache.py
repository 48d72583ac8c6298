"""Copies on the server: an older one never replaces a newer one, and no body is combined with the wrong version."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots.cache import RefreshFailure, SnapshotCache, WrittenResult
from tidegate.systems.snapshots.model import SnapshotSubject, digest, pack
from tidegate.systems.snapshots.store import Refreshed, SnapshotRow, WriteEffect

HERO = SnapshotSubject("character", "hero")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def shelf(valkey: Valkey) -> SnapshotCache:
    return SnapshotCache(valkey, keep=timedelta(minutes=1))


def brought(
    version: int, body: bytes | None, *, is_changed: bool = True, subject: SnapshotSubject = HERO
) -> WrittenResult:
    checked = NOON + timedelta(seconds=version)
    if body is None:
        result = Refreshed(subject=subject, version=version, checked_at=checked, body=None)
    else:
        result = Refreshed.of(subject, version, checked_at=checked, body=body, upstream_id="u1")
    return WrittenResult(result, WriteEffect(subject, version, is_taken=True, is_changed=is_changed))


def row(version: int, body: bytes | None, *, missing: bool = False) -> SnapshotRow:
    return SnapshotRow(
        subject=HERO,
        version=version,
        upstream_id=None,
        body=None if body is None else pack(body),
        hash=None if body is None else digest(body),
        size=0,
        last_updated_at=NOON,
        last_checked_at=NOON,
        missing_since=NOON if missing else None,
        last_asked_at=None,
    )


async def test_a_refreshed_snapshot_is_read_back(shelf: SnapshotCache):
    assert await shelf.get(HERO) is None
    await shelf.put_written([brought(5, b'{"level":1}')], only_known=False)

    kept = await shelf.get(HERO)

    assert kept is not None
    assert (kept.version, kept.body, kept.upstream_id, kept.missing_ms) == (5, b'{"level":1}', "u1", None)
    assert kept.updated_ms == kept.checked_ms


async def test_a_check_updates_the_time_and_keeps_the_body(shelf: SnapshotCache):
    await shelf.put_written([brought(5, b'{"level":1}')], only_known=False)
    await shelf.put_written([brought(6, b'{"level":1}', is_changed=False)], only_known=True)

    kept = await shelf.get(HERO)

    assert kept is not None
    assert (kept.version, kept.body) == (6, b'{"level":1}')
    assert kept.updated_ms is not None
    assert kept.checked_ms == kept.updated_ms + 1000


async def test_a_check_does_not_refresh_another_body_than_the_checked_one(shelf: SnapshotCache):
    """Whoever wrote the body of version 6 died before it was kept here; all later checks find it unchanged."""
    await shelf.put_written([brought(5, b'{"level":1}')], only_known=False)
    await shelf.put_written([brought(7, b'{"level":2}', is_changed=False)], only_known=True)

    assert await shelf.get(HERO) is None, "SQL has it"


async def test_a_row_read_before_a_failure_does_not_clear_it(shelf: SnapshotCache):
    failed = RefreshFailure(reason="UPSTREAM_5XX", message="503", failed_at=NOON)
    await shelf.put_row(row(5, b"{}"))
    await shelf.put_failed([(HERO, 6, failed)])
    await shelf.put_row(row(5, b"{}"))
    late = await shelf.get(HERO)
    await shelf.put_row(row(7, b"{}"))
    newer = await shelf.get(HERO)

    assert late is not None
    assert late.failed == failed
    assert newer is not None
    assert newer.failed is None, "a newer success has ended it"


@pytest.mark.every_server
@pytest.mark.parametrize("is_changed", [True, False])
async def test_a_success_clears_a_failure(shelf: SnapshotCache, is_changed: bool):
    await shelf.put_written([brought(5, b"{}")], only_known=False)
    await shelf.put_failed([(HERO, 6, RefreshFailure(reason="UPSTREAM_5XX", message="503", failed_at=NOON))])
    await shelf.put_written([brought(7, b"{}", is_changed=is_changed)], only_known=False)

    kept = await shelf.get(HERO)

    assert kept is not None
    assert (kept.version, kept.failed) == (7, None)


async def test_a_missing_object_has_no_body_and_an_unchanged_return_is_read_from_sql(shelf: SnapshotCache):
    await shelf.put_written([brought(5, b'{"level":1}')], only_known=False)
    await shelf.put_written([brought(6, None, is_changed=False)], only_known=True)
    gone = await shelf.get(HERO)
    await shelf.put_written([brought(7, b'{"level":1}', is_changed=False)], only_known=False)

    assert gone is not None
    assert (gone.body, gone.missing_ms is not None) == (None, True)
    assert await shelf.get(HERO) is None
    await shelf.put_row(row(7, b'{"level":1}'))
    back = await shelf.get(HERO)
    assert back is not None
    assert back.body == b'{"level":1}'


async def test_background_results_without_readers_are_not_copied(shelf: SnapshotCache):
    await shelf.put_written([brought(5, b"{}")], only_known=True)

    assert await shelf.get(HERO) is None


@pytest.mark.every_server
async def test_the_newest_copy_stays_in_any_order_of_arrival(shelf: SnapshotCache):
    chance = random.Random(7)
    for turn in range(10):
        subject = SnapshotSubject("character", f"hero {turn}")
        versions = list(range(1, 9))
        chance.shuffle(versions)
        for version in versions:
            await shelf.put_written([brought(version, b'{"v":%d}' % version, subject=subject)], only_known=False)
            kept = await shelf.get(subject)
            assert kept is not None
            assert kept.version == max(versions[: versions.index(version) + 1])
            assert kept.body == b'{"v":%d}' % kept.version


async def test_a_slow_reader_of_sql_does_not_overwrite_a_refresh(shelf: SnapshotCache):
    await shelf.put_written([brought(6, b'{"level":2}')], only_known=False)
    await shelf.put_row(row(5, b'{"level":1}'))

    kept = await shelf.get(HERO)

    assert kept is not None
    assert kept.body == b'{"level":2}'


async def test_without_a_copy_an_older_late_one_is_refused(shelf: SnapshotCache):
    """A reader of SQL was slow, and the background brought something newer meanwhile."""
    await shelf.put_written([brought(6, b'{"level":2}')], only_known=True)
    await shelf.put_row(row(5, b'{"level":1}'))

    assert await shelf.get(HERO) is None
    await shelf.put_row(row(6, b'{"level":2}'))
    kept = await shelf.get(HERO)
    assert kept is not None
    assert kept.body == b'{"level":2}'


async def test_a_removed_copy_is_not_restored_by_a_slow_reader(shelf: SnapshotCache):
    await shelf.put_written([brought(5, b'{"level":1}')], only_known=False)
    await shelf.put_written([brought(7, b'{"level":2}', is_changed=False)], only_known=True)
    await shelf.put_row(row(5, b'{"level":1}'))

    assert await shelf.get(HERO) is None


@pytest.mark.every_server
async def test_a_copy_expires(shelf: SnapshotCache, valkey: Valkey):
    await shelf.put_row(row(5, b"{}"))

    assert 0 < await valkey.execute("PTTL", shelf.place(HERO)) <= 60_000
