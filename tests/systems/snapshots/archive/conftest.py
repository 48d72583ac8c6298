"""A history to archive, and storages for it: a folder, and a server that speaks S3."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.servers.s3 import S3Server, s3_server
from tests.systems.snapshots.archive.history_rows import ArchiveHarness, harness_at
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def in_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ObjectStorage:
    """A place of its own on the server; the way in comes from the environment."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStorage(f"{s3.url}/{abs(hash(request.node.nodeid))}")


@pytest.fixture
def in_folder(tmp_path: Path) -> ObjectStorage:
    return ObjectStorage((tmp_path / "an archive").as_uri())


@pytest.fixture(params=["in_folder", "in_s3"])
def storage(request: pytest.FixtureRequest) -> ObjectStorage:
    """Each place in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[ArchiveHarness]:
    async with harness_at(await migrated_file(tmp_path / "past.db")) as opened:
        yield opened


@pytest.fixture
async def harness_on_each_database(migrated_url: str) -> AsyncGenerator[ArchiveHarness]:
    async with harness_at(migrated_url) as opened:
        yield opened
