"""The archive: old history moves to it, and no entry is lost or returned twice."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.servers.ports import free_port
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.systems.snapshots.archive.history_rows import NOON, OLD, ArchiveHarness, body, harness_at
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.archive.archiver import ArchiveCorrupted, HistoryMover
from tidegate.systems.snapshots.archive.history import SnapshotHistory
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage, StorageUnavailable
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.store import Refreshed

HERO = SnapshotSubject("character", "k 03")
DAYS = [2, 29, 30, 31, 44, 45, 70]


async def test_only_changes_are_kept_as_history_and_returned_newest_first(
    harness_on_each_database: ArchiveHarness, in_folder: ObjectStorage
):
    harness = harness_on_each_database
    await harness.fill()
    await harness.fill(days=[2])  # the same again is no change

    told = await harness.history(in_folder, HERO)

    assert [entry.version for entry in told] == [1000 - days for days in DAYS]
    assert [entry.body for entry in told] == [body(HERO, days) for days in DAYS]
    assert told[0].changed_at == NOON - timedelta(days=2)
    assert not any(entry.is_archived for entry in told)


async def test_disabled_history_is_not_stored(harness: ArchiveHarness, in_folder: ObjectStorage):
    results = [store.Refreshed.of(HERO, 1, checked_at=NOON, body=b"{}")]
    await harness.database.transaction(store.write_round, results, False)

    assert await harness.rows() == 0


async def test_history_is_unchanged_after_its_old_part_was_moved(harness: ArchiveHarness, storage: ObjectStorage):
    subjects = await harness.fill()
    before = {subject: await harness.history(storage, subject) for subject in subjects}

    moved = await harness.move_all(storage)

    # Whole days: the thirtieth before noon is not over yet, thirty days ago at noon.
    assert moved == 4 * len(subjects)
    assert await harness.rows() == 3 * len(subjects)
    for subject in subjects[::5]:
        after = await harness.history(storage, subject)
        assert [(each.version, each.changed_at, each.hash, each.body) for each in after] == [
            (each.version, each.changed_at, each.hash, each.body) for each in before[subject]
        ]
        assert [each.is_archived for each in after] == [False] * 3 + [True] * 4


async def test_the_archive_works_with_every_database(
    harness_on_each_database: ArchiveHarness, in_folder: ObjectStorage
):
    harness = harness_on_each_database
    subjects = [
        SnapshotSubject("character", key) for key in ("a", "B", "Z", "z", "ä", "é~", "_", "-", "日本", "10", "9")
    ]
    for days_ago in (50, 40, 3):
        await harness.change(subjects, days_ago)

    assert await harness.move_all(in_folder, most_entries=3) == 22
    assert await harness.move_all(in_folder, most_entries=3) == 0

    for subject in subjects:
        told = await harness.history(in_folder, subject)
        assert [each.body for each in told] == [body(subject, days) for days in (3, 40, 50)], subject


async def test_the_limit_is_respected_and_the_archive_is_not_read_when_the_database_has_enough(harness: ArchiveHarness):
    await harness.fill()

    def nowhere() -> ObjectStorage:
        raise AssertionError("nobody needs the archive")

    told = await SnapshotHistory(harness.database, nowhere).of(HERO, limit=2)

    assert [entry.version for entry in told] == [998, 971]
    with pytest.raises(InvalidArgument):
        await SnapshotHistory(harness.database, nowhere).of(HERO, limit=0)


async def test_a_limit_extends_into_the_archive(harness: ArchiveHarness, in_folder: ObjectStorage):
    await harness.fill()
    await harness.move_all(in_folder)

    assert [each.version for each in await harness.history(in_folder, HERO, limit=5)] == [998, 971, 970, 969, 956]


async def test_files_are_partitioned_by_kind_and_day_and_any_tool_can_query_them(
    harness: ArchiveHarness, tmp_path: Path
):
    storage = ObjectStorage((tmp_path / "lake").as_uri())
    await harness.fill()
    await harness.move_all(storage, most_entries=1000)

    names = await storage.names()
    assert len(names) == 2 * 4
    assert names[0].startswith("kind=character/day=2026-09-06/")
    table = ds.dataset(tmp_path / "lake", partitioning="hive", format="parquet").to_table()
    assert table.num_rows == 2 * 12 * 4
    assert {"kind", "day", "key", "version", "changed_at", "hash", "body"} <= set(table.column_names)


async def test_moving_again_changes_nothing(harness: ArchiveHarness, storage: ObjectStorage):
    await harness.fill()
    await harness.move_all(storage)
    names, told = await storage.names(), await harness.history(storage, HERO)

    assert await harness.move_all(storage) == 0

    assert await storage.names() == names
    assert await harness.history(storage, HERO) == told


async def test_a_part_is_bounded_by_its_bytes_too(harness: ArchiveHarness, in_folder: ObjectStorage):
    await harness.change([SnapshotSubject("character", f"k{n}") for n in range(10)], 40)

    moved = await HistoryMover(harness.database, in_folder, most_bytes=80).move_some(NOON - OLD)

    assert moved == 2
    assert await HistoryMover(harness.database, in_folder, most_bytes=1).move_some(NOON - OLD) == 1


class Corrupting:
    """Loses a byte of what it is given, without a word."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    async def put(self, name: str, content: bytes) -> None:
        await self._storage.put(name, content[:-1])

    async def get(self, name: str) -> bytes:
        return await self._storage.get(name)


async def test_rows_are_deleted_only_after_the_written_file_was_verified(
    harness: ArchiveHarness, storage: ObjectStorage
):
    await harness.fill()
    rows = await harness.rows()

    with pytest.raises(ArchiveCorrupted):
        await harness.move_all(Corrupting(storage))

    assert await harness.rows() == rows
    assert await harness.move_all(storage) == 4 * 24  # over what the first one left behind


@pytest.mark.race
async def test_two_assumed_leaders_archive_everything_once(
    harness_on_each_database: ArchiveHarness, in_folder: ObjectStorage
):
    harness = harness_on_each_database
    subjects = await harness.fill(keys=4)

    await asyncio.gather(*(harness.move_all(in_folder, most_entries=3) for _ in range(3)))

    assert await harness.rows() == 3 * len(subjects)
    for subject in subjects:
        assert [each.version for each in await harness.history(in_folder, subject)] == [1000 - days for days in DAYS]


async def test_a_late_entry_is_archived_too(harness: ArchiveHarness, in_folder: ObjectStorage):
    await harness.fill()
    await harness.move_all(in_folder)
    late = SnapshotSubject("character", "k 02b")
    await harness.change([late], 45)

    assert await harness.move_all(in_folder) == 1
    assert [each.is_archived for each in await harness.history(in_folder, late)] == [True]
    assert len(await harness.history(in_folder, HERO)) == 7


async def test_the_newest_entry_of_a_day_is_returned_from_any_file(harness: ArchiveHarness, in_folder: ObjectStorage):
    for version in range(1, 6):
        then = NOON - timedelta(days=45) + timedelta(minutes=version)
        change = Refreshed.of(HERO, version, checked_at=then, body=b"%d" % version)
        await harness.database.transaction(store.write_round, [change])
        assert await harness.move_all(in_folder) == 1

    for limit in range(1, 6):
        told = [each.version for each in await harness.history(in_folder, HERO, limit=limit)]
        assert told == [5, 4, 3, 2, 1][:limit]


@settings(max_examples=examples(5), deadline=None)
@given(
    changes=st.sets(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 90)), min_size=1, max_size=40),
    most_entries=st.integers(1, 20),
    limit=st.integers(1, 30),
)
def test_history_is_unchanged_by_any_sequence_of_moves(
    tmp_path_factory: pytest.TempPathFactory, changes: set[tuple[str, int]], most_entries: int, limit: int
):
    async def live(folder: Path) -> None:
        storage = ObjectStorage((folder / "archive").as_uri())
        async with harness_at(await migrated_file(folder / "past.db")) as harness:
            for key, days_ago in sorted(changes, key=lambda each: -each[1]):
                await harness.change([SnapshotSubject("character", key)], days_ago)
            keys = sorted({key for key, _ in changes})
            before = [await harness.history(storage, SnapshotSubject("character", key), limit) for key in keys]
            await harness.move_all(storage, most_entries=most_entries)
            after = [await harness.history(storage, SnapshotSubject("character", key), limit) for key in keys]
            assert [[(e.version, e.body) for e in told] for told in after] == [
                [(e.version, e.body) for e in told] for told in before
            ]

    asyncio.run(live(tmp_path_factory.mktemp("archive")))


async def test_an_unavailable_storage_is_reported_and_deletes_nothing(
    harness: ArchiveHarness, monkeypatch: pytest.MonkeyPatch
):
    for name, value in S3Server(free_port()).environment.items():
        monkeypatch.setenv(name, value)
    await harness.fill(keys=1)
    rows = await harness.rows()

    with pytest.raises(StorageUnavailable) as told:
        await harness.move_all(ObjectStorage("s3://snapshots/archive"))

    assert isinstance(told.value, Unavailable)
    assert "s3://snapshots/archive" in str(told.value)
    assert "\n" not in str(told.value)
    assert await harness.rows() == rows


@pytest.mark.full
async def test_a_missing_bucket_is_reported_without_credentials(
    harness: ArchiveHarness, s3: S3Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    await harness.fill(keys=1)

    with pytest.raises((StorageUnavailable, ServerRefused)) as told:
        await harness.move_all(ObjectStorage("s3://nosuchbucket/archive"))

    everything = str(told.value) + repr(told.value) + "".join(capfd.readouterr())
    assert SECRET_KEY not in everything
    assert ACCESS_KEY not in everything
