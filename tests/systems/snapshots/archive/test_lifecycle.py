"""Files of the archive become cold and are deleted as configured."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.servers.s3 import BUCKET
from tests.systems.snapshots.archive.history_rows import NOON, ArchiveHarness, body
from tests.systems.snapshots.archive.test_archiver import fire_until_it_sleeps
from tidegate.core.errors import ServerRefused
from tidegate.systems.snapshots.archive import lifecycle as ageing
from tidegate.systems.snapshots.archive.archiver import NightlyArchive
from tidegate.systems.snapshots.archive.lifecycle import FolderLifecycle, S3Lifecycle, lifecycle_of
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.settings import ArchiveSettings

HERO = SnapshotSubject("character", "k 01")
TODAY = NOON.date()


class Folders:
    """An archive in a folder, and its cold folder beside it."""

    def __init__(self, root: Path) -> None:
        self.warm, self.cold = root / "archive", root / "archive-cold"
        self.storage = ObjectStorage(self.warm.as_uri(), self.cold)

    def nightly(self, harness: ArchiveHarness, **given: Any) -> NightlyArchive:
        settings = ArchiveSettings.model_validate(given)
        url = self.warm.as_uri()
        return NightlyArchive(harness.database, lambda: self.storage, settings, lambda: lifecycle_of(settings, url))

    def days(self, root: Path) -> list[int]:
        """How many days ago, of each file."""
        names = {path.parent.name.removeprefix("day=") for path in root.rglob("*.parquet")}
        return sorted((TODAY - type(TODAY).fromisoformat(name)).days for name in names)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


async def test_old_files_of_a_folder_become_cold_and_are_still_read(harness: ArchiveHarness, folders: Folders):
    await harness.fill(keys=2, days=[400, 181, 179, 45, 2])
    await fire_until_it_sleeps(folders.nightly(harness))

    assert (folders.days(folders.warm), folders.days(folders.cold)) == ([45, 179], [181, 400])
    found = await harness.history(folders.storage, HERO)
    assert [each.body for each in found] == [body(HERO, days) for days in (2, 45, 179, 181, 400)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in folders.cold.rglob("*"))


async def test_history_is_deleted_by_policy_with_its_rows(harness: ArchiveHarness, folders: Folders):
    await harness.fill(keys=2, days=[800, 400, 45])
    await fire_until_it_sleeps(folders.nightly(harness))
    await fire_until_it_sleeps(folders.nightly(harness, delete_after=timedelta(days=500)))

    assert (folders.days(folders.warm), folders.days(folders.cold)) == ([45], [400])
    assert [each.body for each in await harness.history(folders.storage, HERO)] == [body(HERO, 45), body(HERO, 400)]
    assert await harness.database.transaction(ageing.delete_rows, TODAY - timedelta(days=500)) == 0


async def test_a_crash_between_copy_and_removal_is_repaired(
    harness: ArchiveHarness, folders: Folders, monkeypatch: pytest.MonkeyPatch
):
    """The file is in both places then, and in one at least at every moment."""
    await harness.fill(keys=2, days=[181, 45])
    with monkeypatch.context() as crashing:
        crashing.setattr(ageing, "_remove", _die)
        with pytest.raises(KeyboardInterrupt):
            await fire_until_it_sleeps(folders.nightly(harness))
    assert (folders.days(folders.warm), folders.days(folders.cold)) == ([45, 181], [181])
    assert len(await harness.history(folders.storage, HERO)) == 2

    await fire_until_it_sleeps(folders.nightly(harness))

    assert (folders.days(folders.warm), folders.days(folders.cold)) == ([45], [181])
    assert len(await harness.history(folders.storage, HERO)) == 2


def _die(*_: object) -> None:
    raise KeyboardInterrupt


async def test_a_file_that_another_process_moved_first_is_no_error(
    harness: ArchiveHarness, folders: Folders, monkeypatch: pytest.MonkeyPatch
):
    """A leader that was frozen goes on with files that its successor moved meanwhile."""
    await harness.fill(keys=2, days=[182, 181])
    await harness.move_all(folders.storage)
    settings = ArchiveSettings()
    frozen = list(ageing._older(folders.warm, TODAY, 100))  # pyright: ignore[reportPrivateUsage]
    await FolderLifecycle(folders.warm, folders.cold, settings).apply(TODAY)

    def as_it_was(*_: object) -> list[Path]:
        return frozen

    monkeypatch.setattr(ageing, "_older", as_it_was)
    await FolderLifecycle(folders.warm, folders.cold, settings).apply(TODAY)

    assert (folders.days(folders.warm), folders.days(folders.cold)) == ([], [181, 182])
    assert len(await harness.history(folders.storage, HERO)) == 2


@pytest.mark.full
async def test_the_lifecycle_rule_is_added_to_a_bucket_and_other_rules_are_kept(in_s3: ObjectStorage):
    theirs = {"ID": "theirs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 7}}
    settings = ArchiveSettings(cold_class="GLACIER", delete_after=timedelta(days=730))
    lifecycle = S3Lifecycle(in_s3.url, settings)
    async with s3_client() as client:
        await client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [theirs]})
        assert not await lifecycle.check()

        await lifecycle.apply(TODAY)
        await lifecycle.apply(TODAY)

        assert await lifecycle.check()
        rules = (await client.get_bucket_lifecycle_configuration(Bucket=BUCKET))["Rules"]
        path = in_s3.url.removeprefix(f"s3://{BUCKET}/")
        assert [rule["ID"] for rule in rules] == ["theirs", f"tidegate archive {path}"]
        assert rules[1]["Filter"] == {"Prefix": f"{path}/kind="}
        assert rules[1]["Transitions"] == [{"Days": 150, "StorageClass": "GLACIER"}]
        assert rules[1]["Expiration"]["Days"] == 700

        await S3Lifecycle(in_s3.url, ArchiveSettings(cold_class="none")).apply(TODAY)
        rules = (await client.get_bucket_lifecycle_configuration(Bucket=BUCKET))["Rules"]
        assert [rule["ID"] for rule in rules] == ["theirs"]


@pytest.mark.full
async def test_a_storage_that_refuses_the_rule_does_not_stop_the_archive(harness: ArchiveHarness, in_s3: ObjectStorage):
    await harness.fill(keys=2, days=[45])
    refused = S3Lifecycle("s3://no-such-bucket/x", ArchiveSettings())
    with pytest.raises(ServerRefused, match="NoSuchBucket"):
        await refused.apply(TODAY)

    await fire_until_it_sleeps(NightlyArchive(harness.database, lambda: in_s3, ArchiveSettings(), lambda: refused))

    assert await harness.rows() == 0


@pytest.mark.full
async def test_history_in_a_storage_class_that_must_be_restored_is_omitted(
    harness: ArchiveHarness, in_s3: ObjectStorage
):
    await harness.fill(keys=2, days=[200, 45, 2])
    await harness.move_all(in_s3)
    async with s3_client() as client:
        prefix = in_s3.url.removeprefix(f"s3://{BUCKET}/")
        for name in await in_s3.names():
            if f"day={TODAY - timedelta(days=200)}" in name:
                key = f"{prefix}/{name}"
                source = {"Bucket": BUCKET, "Key": key}
                await client.copy_object(Bucket=BUCKET, Key=key, CopySource=source, StorageClass="GLACIER")

    assert [each.body for each in await harness.history(in_s3, HERO)] == [body(HERO, 2), body(HERO, 45)]


def test_contradictory_ages_are_refused():
    with pytest.raises(ValidationError, match="a day longer"):
        ArchiveSettings(delete_after=timedelta(days=180))
    with pytest.raises(ValidationError, match="must be a folder"):
        ArchiveSettings(cold_url="s3://bucket")
    assert ArchiveSettings(after=timedelta(days=365)).cold_age == timedelta(days=366)


@asynccontextmanager
async def s3_client() -> AsyncGenerator[Any]:
    from aiobotocore.session import get_session

    async with get_session().create_client("s3", region_name="us-east-1") as client:
        yield client


@pytest.mark.parametrize("name", ["archive", "archive/", "other/../archive", "link"])
async def test_a_cold_folder_inside_the_archive_is_refused_and_nothing_is_removed(
    harness: ArchiveHarness, folders: Folders, tmp_path: Path, name: str
):
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(folders.warm)
    await harness.fill(keys=1, days=[400])

    await fire_until_it_sleeps(folders.nightly(harness, cold_url=f"file://{tmp_path}/{name}"))

    assert folders.days(folders.warm) == [400]


@pytest.mark.parametrize(("url", "prefix"), [("s3://bucket", "kind="), ("s3://bucket/a/b/", "a/b/kind=")])
def test_the_rule_of_a_bucket_applies_only_to_files_of_the_archive(url: str, prefix: str):
    [rule] = S3Lifecycle(url, ArchiveSettings()).wanted()

    assert rule["Filter"] == {"Prefix": prefix}
