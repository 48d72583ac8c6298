"""What a sync leaves behind: private files whatever the umask, and no half of a file where the disk has no room."""

import os
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.storage.documents.harness import StoreHarness, issue
from tests.storage.documents.sync.targets import KINDS, Target, assert_equal
from tidegate.storage.documents import SqlDocuments, StoredDocument
from tidegate.storage.documents.sync.destination import SyncFailed, parse_destination
from tidegate.storage.documents.sync.synchronizer import SyncOrder, sync
from tidegate.storage.sql import Database

MANY, LIMIT = 3_000, 64 * 1024
_LIMITED_SYNC = """
import asyncio, resource, sys
from tests.storage.documents.sync.test_failures import copy
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
asyncio.run(copy(*sys.argv[2:]))
"""


@pytest.fixture
def files(target: Target) -> Target:
    if target.name == "postgres":
        pytest.skip("the server owns the files")
    return target


@contextmanager
def umask(mask: int) -> Generator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(place: Path) -> dict[str, int]:
    found = [place, *place.rglob("*")] if place.is_dir() else sorted(place.parent.glob(f"{place.name}*"))
    return {path.name: path.stat().st_mode & 0o777 for path in found}


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
async def test_files_are_private_regardless_of_the_umask(local: StoreHarness, files: Target, mask: int) -> None:
    with umask(mask):
        await local.write(issue("a"))
        await files.sync(local.store)
        assert set(modes(Path(files.address.place)).values()) <= {0o600, 0o700}, modes(Path(files.address.place))
        await local.write(issue("b"))
        await files.sync(local.store)
    await assert_equal(files, local)


async def test_existing_permissions_of_a_file_are_kept(local: StoreHarness, files: Target) -> None:
    await local.write(issue("a"))
    await files.sync(local.store)
    path = Path(files.address.place) if files.name == "duckdb" else files.file()
    path.chmod(0o640)
    await local.write(issue("b"))
    await files.sync(local.store)
    assert path.stat().st_mode & 0o777 == 0o640


async def copy(url: str, to: str) -> None:
    """Sync in a process of its own, and print what it says."""
    async with await Database.open(url) as database:
        try:
            await sync(SqlDocuments(database).of("github"), SyncOrder(to=parse_destination(to), kinds=KINDS))
        except SyncFailed as failed:
            print(failed)


async def test_a_sync_without_disk_space_leaves_the_old_file_and_is_continued(
    local: StoreHarness, files: Target
) -> None:
    """The system refuses to let files grow, as a full disk does."""
    await local.write(issue("a"))
    await files.sync(local.store)
    await local.write(*(issue(f"{n}", title=os.urandom(64).hex()) for n in range(MANY)))
    process = await create_subprocess_exec(
        sys.executable, "-c", _LIMITED_SYNC, str(LIMIT), local.url, files.url, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()

    assert process.returncode == 0, err.decode()
    assert "large" in out.decode().lower() or "write" in out.decode().lower(), out
    place = Path(files.address.place)
    if files.name != "duckdb":
        assert [path.name for path in place.rglob("*") if path.is_file()] == [files.file().name], "no partial file"
        assert (await files.rows()).keys() == {"a"}
    await files.sync(local.store)
    await assert_equal(files, local)


class ChangingStore:
    """A store in which a document changes between the comparison of the moments and the reading of the documents."""

    def __init__(self, harness: StoreHarness, times: int) -> None:
        self._shelf, self._times = harness, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shelf.store, name)

    async def iterate_changes(
        self, kind: str, since: datetime, until: datetime, *, batch: int
    ) -> AsyncIterator[StoredDocument]:
        if self._times:
            self._times -= 1
            self._shelf.clock.advance(timedelta(seconds=1))
            await self._shelf.write(issue("b", title=f"change {self._times}"))
        async for document in self._shelf.store.iterate_changes(kind, since, until, batch=batch):
            yield document


@pytest.mark.parametrize("times", [1, 3])
async def test_a_full_sync_keeps_the_row_of_a_document_that_changes_meanwhile(
    local: StoreHarness, target: Target, times: int
) -> None:
    await local.write(issue("a"), issue("b"), issue("c"))
    await target.sync(local.store)
    store: Any = ChangingStore(local, times)
    await sync(store, SyncOrder(to=target.address, kinds=KINDS, full=True))
    await assert_equal(target, local)


async def test_a_full_sync_removes_no_row_while_documents_change(local: StoreHarness, target: Target) -> None:
    await local.write(issue("a"), issue("b"), issue("c"))
    await target.sync(local.store)
    store: Any = ChangingStore(local, 1_000)
    await sync(store, SyncOrder(to=target.address, kinds=KINDS, full=True))
    if target.name in ("duckdb", "postgres"):
        assert (await target.rows()).keys() == {"a", "b", "c"}
    await target.sync(local.store)
    await assert_equal(target, local)
