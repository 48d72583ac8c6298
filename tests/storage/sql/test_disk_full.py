"""A full disk of the database: one error that says so, one log line, and writes succeed when there is space."""

import json
from io import StringIO
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, func, insert, select

from tidegate.core.errors import NoSpaceLeft
from tidegate.core.telemetry import disks
from tidegate.core.telemetry.disks import Disk
from tidegate.storage.sql import Database, Transaction

blobs = Table("blobs", MetaData(), Column("id", Integer, primary_key=True), Column("data", LargeBinary))


def limit_to(tx: Transaction, pages: int) -> None:
    """The file may not become larger, which SQLite reports as it reports a full disk."""
    tx.execute_sql(f"PRAGMA max_page_count={pages}")


def write(tx: Transaction) -> None:
    tx.execute(insert(blobs), {"data": bytes(100_000)})


def events(logged: StringIO) -> list[str]:
    """Names of the warnings and errors logged so far."""
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [line["event"] for line in lines if line["level"] in ("warning", "error")]


def count(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(blobs)).scalar_one()


async def test_a_full_disk_is_reported_with_its_folder_and_logged_once(
    tmp_path: Path, logged: StringIO, monkeypatch: pytest.MonkeyPatch
):
    free = [3]

    def free_mb(folder: Path) -> int:
        """A controlled figure: other processes change the real free space at any moment."""
        del folder
        return free[0]

    monkeypatch.setattr(disks, "free_mb", free_mb)
    async with await Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        await database.transaction(lambda tx: blobs.create(tx.connection))
        await database.transaction(limit_to, 1)  # SQLite takes the present size for the least
        for _ in range(3):
            with pytest.raises(NoSpaceLeft, match=rf"^no space left in {tmp_path}: 3 MB free$"):
                await database.transaction(write)
        assert await database.read(count) == 0

        await database.transaction(limit_to, 1_000_000)
        await database.transaction(write)
        assert await database.read(count) == 1
        assert events(logged) == ["disk.filled"]  # no space was freed: one success proves nothing

        free[0] = 500
        await database.transaction(write)

    assert events(logged) == ["disk.filled", "disk.freed"]
    assert "database.transaction_retried" not in logged.getvalue()


def test_small_successful_writes_do_not_end_a_full_disk(logged: StringIO):
    disk = Disk("the server")
    disk.refused()
    disk.accepted()
    disk.refused()

    assert disk.is_full
    assert [json.loads(line)["event"] for line in logged.getvalue().splitlines()] == ["disk.filled"]
