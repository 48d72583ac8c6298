"""A store with what a committer has around it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import delete

from tests.servers.migrated import migrated_folder, migrated_for_good
from tests.servers.mongo import mongo_database
from tests.servers.sql import SqlName
from tidegate.core.clock import ManualClock
from tidegate.storage.documents import (
    Document,
    Documents,
    DocumentSettings,
    DocumentStore,
    Listing,
    StoredDocument,
    Written,
)
from tidegate.storage.documents.sql import open_documents
from tidegate.storage.documents.statements import documents
from tidegate.storage.sql import Database

StoreName = Literal["sqlite", "postgres", "mariadb", "mongo"]
ALL_STORES: tuple[StoreName, ...] = ("sqlite", "postgres", "mariadb", "mongo")


@dataclass
class StoreHarness:
    store: DocumentStore
    database: Database
    clock: ManualClock
    url: str
    mongo_url: str | None = None
    documents: Documents | None = None

    def beside(self, source: str) -> "StoreHarness":
        """The documents of another source in the same place."""
        assert self.documents is not None
        return replace(self, store=self.documents.of(source))

    async def write(self, *documents: Document, completed: Sequence[Listing] = ()) -> Written:
        """As a committer does it."""
        staged = await self.store.stage(documents, completed=completed)
        return await self.database.transaction(staged.apply)

    async def changed(self, *documents: Document) -> int:
        return (await self.write(*documents)).changed

    async def get(self, number: str, kind: str = "issue") -> StoredDocument:
        found = await self.store.get(kind, number)
        assert found is not None
        return found

    async def ids(self, kind: str = "issue", owner: str | None = None, **options: Any) -> list[str]:
        return [document.id async for document in self.store.iterate(kind, owner, **options)]


@asynccontextmanager
async def open_harness(name: StoreName, folder: Path) -> AsyncGenerator[StoreHarness]:
    """An empty store of that name."""
    clock = ManualClock()
    url = await _database_url("sqlite" if name == "mongo" else name, folder)
    async with await Database.open(url, clock=clock) as database:
        if name != "mongo":
            await database.transaction(lambda tx: tx.execute(delete(documents)))
            there = await open_documents(DocumentSettings(), database)
            yield StoreHarness(there.of("github"), database, clock, url, documents=there)
            return
        async with mongo_database() as mongo_url:
            store = await open_documents(DocumentSettings(url=mongo_url), database)
            try:
                yield StoreHarness(store.of("github"), database, clock, url, mongo_url, store)
            finally:
                await store.close()


_urls: dict[SqlName, str] = {}


async def _database_url(name: SqlName, folder: Path) -> str:
    """One database for all tests of this process, since making one takes long on some servers; it ends with them."""
    if name == "sqlite":
        await migrated_folder(folder)
        return f"sqlite:///{folder / 'tidegate.db'}"
    if name not in _urls:
        _urls[name] = await migrated_for_good(name)
    return _urls[name]


def issue(number: str = "1", /, *, sweep: int = 0, version: int | str | None = None, **changes: Any) -> Document:
    """A document; `changes` are its owner, resource and kind, and else go into its body."""
    placed = {name: changes.pop(name, usual) for name, usual in USUAL.items()}
    body = {"number": number, "title": "first", **changes}
    return Document.of(placed.pop("kind"), number, body=body, version=version, sweep=sweep, **placed)


USUAL = {"kind": "issue", "owner": "octocat", "resource": "repo:octocat/hello"}
