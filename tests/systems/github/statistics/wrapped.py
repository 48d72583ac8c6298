"""A store in front of another, of which a test changes one thing."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from tidegate.storage.documents import (
    ChangeDigest,
    ConditionalWrite,
    Document,
    DocumentStore,
    Listing,
    Staged,
    StoredDocument,
)


class Wrapped:
    """Does what the other does."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    @property
    def source(self) -> str:
        return self._store.source

    @property
    def name(self) -> str:
        return self._store.name

    async def stage(self, documents: Iterable[Document], *, completed: Sequence[Listing] = ()) -> Staged:
        return await self._store.stage(documents, completed=completed)

    async def stage_conditional(
        self, writes: Iterable[ConditionalWrite], *, completed: Sequence[Listing] = ()
    ) -> Staged:
        return await self._store.stage_conditional(writes, completed=completed)

    async def kinds(self) -> Sequence[str]:
        return await self._store.kinds()

    async def get(self, kind: str, id: str) -> StoredDocument | None:  # noqa: A002
        return await self._store.get(kind, id)

    async def count(self, kind: str, owner: str | None = None, *, with_gone: bool = False) -> int:
        return await self._store.count(kind, owner, with_gone=with_gone)

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        return await self._store.changes(kind, owner)

    async def moments(self, kind: str, *, after: datetime | None = None, limit: int = 10_000) -> Sequence[ChangeDigest]:
        return await self._store.moments(kind, after=after, limit=limit)

    def iterate_changes(
        self, kind: str, first: datetime, last: datetime, *, batch: int = 2000
    ) -> AsyncIterator[StoredDocument]:
        return self._store.iterate_changes(kind, first, last, batch=batch)

    def iterate(
        self,
        kind: str,
        owner: str | None = None,
        *,
        with_gone: bool = False,
        changed_at: Collection[datetime] | None = None,
        batch: int = 500,
    ) -> AsyncIterator[StoredDocument]:
        return self._store.iterate(kind, owner, with_gone=with_gone, changed_at=changed_at, batch=batch)
