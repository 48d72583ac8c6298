"""Archives, and kills itself at a certain step: `python -m …dying_process DATABASE FOLDER STEP`."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy import event

from tests.systems.snapshots.archive.history_rows import NOON, OLD
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.snapshots.archive import archiver
from tidegate.systems.snapshots.archive.archiver import ArchivePart, HistoryMover
from tidegate.systems.snapshots.archive.object_storage import ObjectStorage

STEPS = ("while writing", "written", "compared", "while deleting", "deleted")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """A storage whose user dies at a step of the second part."""

    def __init__(self, storage: ObjectStorage, step: str) -> None:
        self._storage, self._step, self._parts = storage, step, 0

    async def put(self, name: str, content: bytes) -> None:
        self._parts += 1
        if self._parts == 2 and self._step == "while writing":
            unfinished = Path(unquote(urlsplit(self._storage.url).path)) / f"{name}#1"  # as the library calls it
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(content[: len(content) // 2])
            die()
        await self._storage.put(name, content)
        if self._parts == 2 and self._step == "written":
            die()
        if self._parts == 3 and self._step == "deleted":
            die()

    async def get(self, name: str) -> bytes:
        content = await self._storage.get(name)
        if self._parts == 2 and self._step == "compared":
            die()
        return content


def die_while_deleting() -> None:
    """Within the transaction, when half of it was said."""
    forget, calls = archiver.forget, 0

    def dying(tx: Transaction, part: ArchivePart, name: str, size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            event.listen(tx.connection, "after_cursor_execute", lambda *_: die())
        forget(tx, part, name, size)

    archiver.forget = dying


async def main(url: str, folder: str, step: str) -> None:
    if step == "while deleting":
        die_while_deleting()
    async with await Database.open(url, clock=ManualClock(NOON)) as database:
        moving = HistoryMover(database, Dying(ObjectStorage(folder), step), most_entries=5)
        while await moving.move_some(NOON - OLD):
            pass


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
