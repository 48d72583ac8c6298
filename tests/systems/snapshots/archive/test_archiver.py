"""When the archive is written."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.systems.snapshots.archive.history_rows import NOON, ArchiveHarness
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidSettings
from tidegate.systems.snapshots.archive import opening
from tidegate.systems.snapshots.archive.archiver import NightlyArchive, next_night
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage
from tidegate.systems.snapshots.archive.opening import open_storage
from tidegate.systems.snapshots.settings import ArchiveSettings


async def fire_until_it_sleeps(nightly: NightlyArchive) -> int:
    while (wait_ms := await nightly.fire()) == 0:
        pass
    assert wait_ms is not None
    return wait_ms


async def test_old_history_is_moved_at_its_time_of_day_and_not_before(
    harness: ArchiveHarness, in_folder: ObjectStorage
):
    clock = harness.database.clock
    assert isinstance(clock, ManualClock)
    await harness.fill(keys=2, days=[31, 3])
    clock.advance(timedelta(hours=1))
    nightly = NightlyArchive(harness.database, lambda: in_folder, ArchiveSettings(after=timedelta(days=30)))

    wait_ms = await fire_until_it_sleeps(nightly)
    assert timedelta(milliseconds=wait_ms) == timedelta(hours=14, minutes=30)  # from 13:00 to 03:30
    assert await harness.rows() == 8

    clock.advance(timedelta(milliseconds=wait_ms))
    assert await fire_until_it_sleeps(nightly) == 24 * 3600 * 1000
    assert await harness.rows() == 4
    assert len(await in_folder.names()) == 2


async def test_a_missed_night_is_caught_up_immediately(harness: ArchiveHarness, in_folder: ObjectStorage):
    await harness.fill(keys=2, days=[40, 3])

    await fire_until_it_sleeps(NightlyArchive(harness.database, lambda: in_folder, ArchiveSettings()))

    assert await harness.rows() == 4


async def test_without_old_history_the_archive_is_not_opened(harness: ArchiveHarness):
    def nowhere() -> ObjectStorage:
        raise AssertionError("nobody needs it")

    clock = harness.database.clock
    assert isinstance(clock, ManualClock)
    await harness.fill(keys=1, days=[3])
    nightly = NightlyArchive(harness.database, nowhere, ArchiveSettings())
    clock.advance(timedelta(milliseconds=await fire_until_it_sleeps(nightly)))

    assert await fire_until_it_sleeps(nightly) == 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("timezone", "expected"),
    [
        ("UTC", datetime(2026, 11, 16, 3, 30, tzinfo=UTC)),
        ("Asia/Seoul", datetime(2026, 11, 15, 18, 30, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 11, 16, 8, 30, tzinfo=UTC)),
    ],
)
def test_the_time_of_day_is_in_the_configured_time_zone(timezone: str, expected: datetime):
    assert next_night(NOON, ArchiveSettings(timezone=timezone)) == expected


@pytest.mark.parametrize("day", [datetime(2026, 3, 29, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 0, 30, tzinfo=UTC)])
def test_a_night_with_a_clock_change_has_one_archiving_time(day: datetime):
    settings = ArchiveSettings(timezone="Europe/Berlin", at="02:30")
    first = next_night(day, settings)

    assert day < first
    assert timedelta(hours=22) < next_night(first, settings) - first < timedelta(hours=26)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "s3://key:secret@bucket/prefix"},
        {"url": "s3://bucket/prefix?secret=1"},
        {"url": "gopher://bucket"},
        {"url": "s3://"},
        {"url": "/a/folder"},
        {"at": "25:00"},
        {"at": "3 o'clock"},
        {"timezone": "Mars/Olympus"},
        {"after": timedelta(hours=1)},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(ValidationError):
        ArchiveSettings.model_validate(wrong)


def test_without_a_url_the_archive_is_a_folder_in_the_data_folder(in_folder: ObjectStorage, tmp_path: Path):
    folder = tmp_path / "data dir"

    assert open_storage(ArchiveSettings(), folder).url == (folder / "archive").as_uri()
    assert (folder / "archive").is_dir()
    assert open_storage(ArchiveSettings(url=in_folder.url), folder).url == in_folder.url


def no_package(name: str) -> None:
    """As where `name` was not installed."""


def test_missing_packages_are_reported_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(opening, "find_spec", no_package)

    with pytest.raises(InvalidSettings, match=r"tidegate\[archive\]"):
        open_storage(ArchiveSettings(), Path("/nowhere"))
