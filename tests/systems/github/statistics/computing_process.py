"""`-m tests.systems.github.statistics.computing_process URL STOP_AT LOGIN...`: compute the statistics of users.

Where `STOP_AT` is a kind of documents, it says so when it comes to read them, and goes no further.
"""

import asyncio
import sys
from collections.abc import Mapping
from datetime import datetime

from tests.systems.github.statistics.world import run_of
from tests.systems.github.statistics.wrapped import Wrapped
from tidegate.core.telemetry.logs import configure_logs
from tidegate.storage.documents import DocumentStore, SqlDocuments
from tidegate.storage.sql import Database
from tidegate.systems.github.statistics import Statistics


class Stopping(Wrapped):
    def __init__(self, store: DocumentStore, at: str) -> None:
        super().__init__(store)
        self._at = at

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        if kind == self._at:
            print("stopped", flush=True)
            await asyncio.Event().wait()
        return await super().changes(kind, owner)


async def main(url: str, stop_at: str, logins: list[str]) -> None:
    async with await Database.open(url) as database:
        statistics = Statistics(database, Stopping(SqlDocuments(database).of("github"), stop_at))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(statistics.finalize(run_of(login)) for login in logins))
    print("done", flush=True)


configure_logs(level="error")
asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
