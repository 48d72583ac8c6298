"""Documents in the database itself: written in the transaction that ends their jobs.

`open_documents` opens the store that the settings name: this one, or MongoDB.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from itertools import groupby, islice
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, Text, func, select, tuple_, type_coerce, update

from tidegate.core.arguments import require_positive
from tidegate.core.errors import InvalidSettings
from tidegate.storage.documents.document import Document, DocumentSettings, StoredDocument, require_kind, require_source
from tidegate.storage.documents.statements import apply_conditionally, documents, write
from tidegate.storage.documents.store import (
    ChangeDigest,
    ConditionalWrite,
    Documents,
    Listing,
    Staged,
    Written,
    last_per_key,
    one_per_key,
)
from tidegate.storage.sql import Database, Transaction

_c = documents.c
_IDS_AT_ONCE = 1000
_READ = select(
    *(_c.kind, _c.id, _c.owner, _c.resource, _c.version, type_coerce(_c.body, Text)),
    *(_c.created_at, _c.changed_at, _c.gone_at, _c.fingerprint),
)
_BY_CHANGE = "ix_documents_source_kind_owner_gone_at_changed_at"
_BY_MOMENT = "ix_documents_source_kind_changed_at_id_fingerprint"


def _by_index(name: str) -> Select[*tuple[Any, ...]]:
    """Prevent servers from scanning all documents in the order of their ids to avoid a small sort."""
    return (
        _READ.with_hint(documents, f"INDEXED BY {name}", "sqlite")
        .with_hint(documents, f"FORCE INDEX ({name})", "mysql")
        .with_hint(documents, f"FORCE INDEX ({name})", "mariadb")
    )


_READ_CHANGED, _READ_BY_MOMENT = _by_index(_BY_CHANGE), _by_index(_BY_MOMENT)


class SqlDocuments:
    """`Documents` in the table `documents`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """The name of the database."""
        return self._database.name

    def of(self, source: str) -> "SqlDocumentStore":
        """See `Documents.of`."""
        return SqlDocumentStore(self._database, source)

    async def close(self) -> None:
        """Does nothing: the database belongs to the caller."""


class SqlDocumentStore:
    """A `DocumentStore` in the table `documents`."""

    def __init__(self, database: Database, source: str) -> None:
        self._database, self.source = database, require_source(source)

    @property
    def name(self) -> str:
        """The name of the database."""
        return self._database.name

    async def stage(self, documents: Iterable[Document], *, completed: Sequence[Listing] = ()) -> Staged:
        """See `DocumentStore.stage`. Nothing is written before `apply`."""
        return _StagedRows(self.source, one_per_key(documents), completed)

    async def stage_conditional(
        self, writes: Iterable[ConditionalWrite], *, completed: Sequence[Listing] = ()
    ) -> Staged:
        """See `DocumentStore.stage_conditional`. Nothing is written before `apply`."""
        return _ConditionalRows(self.source, last_per_key(writes), completed)

    async def kinds(self) -> Sequence[str]:
        """See `DocumentStore.kinds`."""
        return await self._database.read(_kinds, self.source)

    async def get(self, kind: str, id: str) -> StoredDocument | None:  # noqa: A002
        """See `DocumentStore.get`."""
        return await self._database.read(_get, self.source, require_kind(kind), id)

    async def count(self, kind: str, owner: str | None = None, *, with_gone: bool = False) -> int:
        """See `DocumentStore.count`."""
        return await self._database.read(_count, _those(self.source, require_kind(kind), owner, with_gone=with_gone))

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        """See `DocumentStore.changes`."""
        return await self._database.read(_changes, _those(self.source, require_kind(kind), owner, with_gone=False))

    async def moments(self, kind: str, *, after: datetime | None = None, limit: int = 10_000) -> Sequence[ChangeDigest]:
        """See `DocumentStore.moments`."""
        require_positive("limit", limit)
        those = _those(self.source, require_kind(kind), None, with_gone=True)
        return await self._database.read(_moments, those, after, limit)

    async def iterate_changes(
        self, kind: str, first: datetime, last: datetime, *, batch: int = 2000
    ) -> AsyncIterator[StoredDocument]:
        """See `DocumentStore.iterate_changes`."""
        require_positive("batch", batch)
        kept = [*_those(self.source, require_kind(kind), None, with_gone=True), _c.changed_at <= last]
        page = await self._database.read(_changed_page, [*kept, _c.changed_at >= first], batch)
        while page:
            for document in page:
                yield document
            if len(page) < batch:
                return
            at, id_ = page[-1].changed_at, page[-1].id
            # The first condition is for servers that find no range in the second.
            later = [_c.changed_at >= at, tuple_(_c.changed_at, _c.id) > tuple_(at, id_)]
            page = await self._database.read(_changed_page, [*kept, *later], batch)

    async def iterate(
        self,
        kind: str,
        owner: str | None = None,
        *,
        with_gone: bool = False,
        changed_at: Collection[datetime] | None = None,
        batch: int = 500,
    ) -> AsyncIterator[StoredDocument]:
        """See `DocumentStore.iterate`."""
        require_positive("batch", batch)
        those, reading = _those(self.source, require_kind(kind), owner, with_gone=with_gone), _READ
        if changed_at is not None:
            those.append(_c.changed_at.in_(sorted(changed_at)))
            reading = _READ_CHANGED
        page = await self._database.read(_page, reading, those, batch)
        while page:
            for document in page:
                yield document
            if len(page) < batch:
                return
            page = await self._database.read(_page, reading, [*those, _c.id > page[-1].id], batch)


class _StagedRows:
    def __init__(self, source: str, given: Sequence[Document], completed: Sequence[Listing]) -> None:
        self._source, self._given, self._completed = source, given, completed

    def apply(self, tx: Transaction) -> Written:
        """See `Staged.apply`."""
        changed = write(tx, self._source, self._given) if self._given else 0
        # If all documents changed, the statement has stored their runs already.
        if changed < len(self._given):
            _note_seen(tx, self._source, self._given)
        # After the documents of the list: those have the number of this run now, and are not missing.
        gone = sum(_mark_missing(tx, self._source, listing) for listing in self._completed)
        return Written(changed=changed, gone=gone)


class _ConditionalRows:
    def __init__(self, source: str, writes: Sequence[ConditionalWrite], completed: Sequence[Listing]) -> None:
        self._source, self._writes, self._completed = source, writes, completed

    def apply(self, tx: Transaction) -> Written:
        """See `Staged.apply`."""
        changed, gone = apply_conditionally(tx, self._source, self._writes)
        missing = sum(_mark_missing(tx, self._source, listing) for listing in self._completed)
        return Written(changed=changed, gone=gone + missing)


def _note_seen(tx: Transaction, source: str, given: Sequence[Document]) -> None:
    """Record the run of unchanged documents. Gone documents keep the number of the run that missed them."""
    numbered = sorted((each.kind, each.sweep, each.id) for each in given if each.sweep)
    for (kind, sweep), group in groupby(numbered, key=lambda each: each[:2]):
        for ids in _chunks(each[2] for each in group):
            those = (_c.source == source, _c.kind == kind, _c.id.in_(ids), _c.sweep < sweep, _c.gone_at.is_(None))
            tx.execute(update(documents).where(*those).values(sweep=sweep))


def _mark_missing(tx: Transaction, source: str, listing: Listing) -> int:
    those = (_c.source == source, _c.kind == listing.kind, _c.resource == listing.resource)
    unseen = (_c.sweep < listing.sweep, _c.gone_at.is_(None))
    change = {
        "gone_at": tx.now,
        "changed_at": tx.now,
        "sweep": listing.sweep,
        "fingerprint": _c.fingerprint * 2,
    }
    return tx.execute(update(documents).where(*those, *unseen).values(change)).rowcount


def _those(source: str, kind: str, owner: str | None, *, with_gone: bool) -> list[ColumnElement[bool]]:
    conditions = [_c.source == source, _c.kind == kind]
    if owner is not None:
        conditions.append(_c.owner == owner)
    if not with_gone:
        conditions.append(_c.gone_at.is_(None))
    return conditions


def _kinds(tx: Transaction, source: str) -> list[str]:
    """Find the kinds one after the other by index; DISTINCT would scan all documents."""
    found = list[str]()
    after = [_c.source == source]
    while (kind := tx.execute(select(func.min(_c.kind)).where(*after)).scalar()) is not None:
        found.append(kind)
        after = [_c.source == source, _c.kind > kind]
    return found


def _get(tx: Transaction, source: str, kind: str, id_: str) -> StoredDocument | None:
    row = tx.execute(_READ.where(_c.source == source, _c.kind == kind, _c.id == id_)).one_or_none()
    return None if row is None else _stored(row)


def _count(tx: Transaction, those: Sequence[ColumnElement[bool]]) -> int:
    return tx.execute(select(func.count()).select_from(documents).where(*those)).scalar_one()


def _changes(tx: Transaction, those: Sequence[ColumnElement[bool]]) -> dict[datetime, int]:
    counted = select(_c.changed_at, func.count()).where(*those).group_by(_c.changed_at)
    return {row[0]: row[1] for row in tx.execute(counted)}


def _moments(
    tx: Transaction, those: Sequence[ColumnElement[bool]], after: datetime | None, limit: int
) -> list[ChangeDigest]:
    sums = select(_c.changed_at, func.count(), func.sum(_c.fingerprint)).where(*those)
    if after is not None:
        sums = sums.where(_c.changed_at > after)
    sums = sums.group_by(_c.changed_at).order_by(_c.changed_at).limit(limit)
    return [ChangeDigest(at, documents, int(fingerprint)) for at, documents, fingerprint in tx.execute(sums)]


def _page(
    tx: Transaction, reading: Select[*tuple[Any, ...]], those: Sequence[ColumnElement[bool]], limit: int
) -> list[StoredDocument]:
    return [_stored(row) for row in tx.execute(reading.where(*those).order_by(_c.id).limit(limit))]


def _changed_page(tx: Transaction, those: Sequence[ColumnElement[bool]], limit: int) -> list[StoredDocument]:
    changed = _READ_BY_MOMENT.where(*those).order_by(_c.changed_at, _c.id).limit(limit)
    return [_stored(row) for row in tx.execute(changed)]


def _stored(row: Row[*tuple[Any, ...]]) -> StoredDocument:
    kind, id_, owner, resource, version, text, created_at, changed_at, gone_at, fingerprint = row
    return StoredDocument(
        kind=kind,
        id=id_,
        owner=owner,
        resource=resource,
        version=version,
        text=text,
        created_at=created_at,
        changed_at=changed_at,
        gone_at=gone_at,
        fingerprint=fingerprint,
    )


def _chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(ids)
    while chunk := list(islice(remaining, _IDS_AT_ONCE)):
        yield chunk


async def check_documents(settings: DocumentSettings) -> str:
    """Check that MongoDB answers if documents are stored there; writes nothing.

    Returns the address of the server without its password, or an empty text if documents are stored in the database.
    """
    if settings.url is None:
        return ""
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.ping(settings.url)


async def open_documents(settings: DocumentSettings, database: Database) -> Documents:
    """Open the document store that the settings name. The caller closes it.

    Raises `InvalidSettings` if the driver of MongoDB is not installed, and the errors of MongoDB if it cannot be used.
    """
    if settings.url is None:
        return SqlDocuments(database)
    _require_driver()
    from tidegate.storage.documents.mongo import MongoDocuments

    return await MongoDocuments.open(settings.url, clock=database.clock)


def _require_driver() -> None:
    if find_spec("pymongo") is None:
        raise InvalidSettings('documents in MongoDB need the driver pymongo: pip install "tidegate[mongo]"')
