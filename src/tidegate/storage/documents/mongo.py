"""Documents in MongoDB: written before the transaction that ends their jobs, in a way that may be repeated.

A write reads the present documents, decides by `store.is_taken`, and replaces only documents that are unchanged since
(`rev`); changed ones are read and decided again. Only basic operations and types are used (times are numbers of
milliseconds), which servers compatible with MongoDB support too.
"""

from collections.abc import AsyncIterator, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

from pymongo import ASCENDING, AsyncMongoClient, UpdateOne, WriteConcern
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, ConfigurationError, InvalidURI, OperationFailure, PyMongoError

from tidegate.core.arguments import require_positive
from tidegate.core.clock import Clock, SystemClock, from_ms, to_ms
from tidegate.core.errors import InvalidArgument, ServerRefused, Unavailable
from tidegate.storage.documents.bodies import from_bson, to_bson
from tidegate.storage.documents.document import Document, StoredDocument, require_kind, require_source
from tidegate.storage.documents.store import (
    ChangeDigest,
    ConditionalWrite,
    Listing,
    Staged,
    StoredVersion,
    WriteAction,
    Written,
    is_taken,
    last_per_key,
    one_per_key,
)
from tidegate.storage.sql import Transaction

_DUPLICATE_KEY = 11000
_REFUSALS = frozenset({13, 18})  # not authorised, wrong password
_AT_ONCE = 1000
_MOST_ROUNDS = 50
_ANSWER_WITHIN_MS = 30_000
_FIND_WITHIN_MS = 5_000
_NO_FINGERPRINT = 1
"""Fingerprint of documents that were stored by versions without fingerprints."""
_DECIDING = {"hash": 1, "version": 1, "sweep": 1, "owner": 1, "gone_ms": 1, "rev": 1}

_INDEXES = (
    ("source", "kind", "owner", "id"),
    ("source", "kind", "resource"),
    ("source", "kind", "owner", "gone_ms", "changed_ms"),
    ("source", "kind", "changed_ms", "id", "fingerprint"),
)

_Fields = dict[str, Any]


class DocumentsUnavailable(Unavailable):
    """The document store did not answer, or refused temporarily."""


class MongoDocuments:
    """`Documents` in the collection `documents` of a MongoDB database. Open it with `MongoDocuments.open`."""

    def __init__(self, client: "AsyncMongoClient[_Fields]", name: str, clock: Clock) -> None:
        self._client, self.name, self._clock = client, name, clock
        self._collection: AsyncCollection[_Fields] = client.get_default_database("tidegate").get_collection(
            "documents",
            # The transaction that follows relies on durable writes.
            write_concern=WriteConcern("majority"),
        )

    @classmethod
    async def open(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Connect and create the indexes. The database is that of the URL, by default `tidegate`."""
        name = _shown(url)
        client = _connect(url, name)
        store = cls(client, name, clock or SystemClock())
        try:
            with _errors_told(name):
                for fields in _INDEXES:
                    await store._collection.create_index([(field, ASCENDING) for field in fields])
        except BaseException:
            await client.close()
            raise
        return store

    @classmethod
    async def ping(cls, url: str) -> str:
        """Check the connection and the login, without writing. Returns the address of the server."""
        name = _shown(url)
        client = _connect(url, name)
        try:
            with _errors_told(name):
                await client.get_default_database("tidegate").command("ping")
        finally:
            await client.close()
        return name

    def of(self, source: str) -> "MongoDocumentStore":
        """See `Documents.of`."""
        return MongoDocumentStore(self._collection, self.name, self._clock, source)

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._client.close()


class MongoDocumentStore:
    """A `DocumentStore` in the collection `documents` of a MongoDB database."""

    def __init__(self, collection: "AsyncCollection[_Fields]", name: str, clock: Clock, source: str) -> None:
        self._collection, self.name, self._clock = collection, name, clock
        self.source = require_source(source)

    async def stage(self, documents: Iterable[Document], *, completed: Sequence[Listing] = ()) -> Staged:
        """See `DocumentStore.stage`. Everything is written here."""
        given = one_per_key(documents)
        with _errors_told(self.name):
            changed = 0
            for start in range(0, len(given), _AT_ONCE):
                changed += await self._write(given[start : start + _AT_ONCE])
            gone = 0
            for listing in completed:
                # After the documents of the list, which carry the number of this run now.
                gone += await self._mark_missing(listing)
        return _AlreadyWritten(Written(changed=changed, gone=gone))

    async def stage_conditional(
        self, writes: Iterable[ConditionalWrite], *, completed: Sequence[Listing] = ()
    ) -> Staged:
        """See `DocumentStore.stage_conditional`. Everything is written here."""
        given = last_per_key(writes)
        with _errors_told(self.name):
            changed = gone = 0
            for start in range(0, len(given), _AT_ONCE):
                counts = await self._write_conditionally(given[start : start + _AT_ONCE])
                changed, gone = changed + counts[0], gone + counts[1]
            for listing in completed:
                gone += await self._mark_missing(listing)
        return _AlreadyWritten(Written(changed=changed, gone=gone))

    async def kinds(self) -> Sequence[str]:
        """See `DocumentStore.kinds`."""
        with _errors_told(self.name):
            return sorted(await self._collection.distinct("kind", {"source": self.source}))

    async def get(self, kind: str, id: str) -> StoredDocument | None:  # noqa: A002
        """See `DocumentStore.get`."""
        with _errors_told(self.name):
            found = await self._collection.find_one({"_id": _key(self.source, require_kind(kind), id)})
        return None if found is None else _stored(found)

    async def count(self, kind: str, owner: str | None = None, *, with_gone: bool = False) -> int:
        """See `DocumentStore.count`."""
        with _errors_told(self.name):
            return await self._collection.count_documents(
                _those(self.source, require_kind(kind), owner, with_gone=with_gone)
            )

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        """See `DocumentStore.changes`."""
        those = {"$match": _those(self.source, require_kind(kind), owner, with_gone=False)}
        counted = {"$group": {"_id": "$changed_ms", "count": {"$sum": 1}}}
        with _errors_told(self.name):
            found = await (await self._collection.aggregate([those, counted])).to_list()
        return {from_ms(each["_id"]): each["count"] for each in found}

    async def moments(self, kind: str, *, after: datetime | None = None, limit: int = 10_000) -> Sequence[ChangeDigest]:
        """See `DocumentStore.moments`."""
        require_positive("limit", limit)
        those = _those(self.source, require_kind(kind), None, with_gone=True)
        if after is not None:
            those["changed_ms"] = {"$gt": to_ms(after)}
        fingerprint = {"$cond": [{"$gt": ["$fingerprint", 0]}, "$fingerprint", _NO_FINGERPRINT]}
        sums = {"_id": "$changed_ms", "documents": {"$sum": 1}, "fingerprint": {"$sum": fingerprint}}
        steps: list[_Fields] = [{"$match": those}, {"$group": sums}, {"$sort": {"_id": 1}}, {"$limit": limit}]
        with _errors_told(self.name):
            found = await (await self._collection.aggregate(steps)).to_list()
        return [ChangeDigest(from_ms(each["_id"]), each["documents"], int(each["fingerprint"])) for each in found]

    async def iterate_changes(
        self, kind: str, first: datetime, last: datetime, *, batch: int = 2000
    ) -> AsyncIterator[StoredDocument]:
        """See `DocumentStore.iterate_changes`."""
        require_positive("batch", batch)
        kept = _those(self.source, require_kind(kind), None, with_gone=True)
        those = {**kept, "changed_ms": {"$gte": to_ms(first), "$lte": to_ms(last)}}
        while True:
            with _errors_told(self.name):
                found = self._collection.find(those).sort([("changed_ms", ASCENDING), ("id", ASCENDING)])
                page = await found.limit(batch).to_list()
            for each in page:
                yield _stored(each)
            if len(page) < batch:
                return
            at, id_ = page[-1]["changed_ms"], page[-1]["id"]
            later = {"changed_ms": {"$gt": at, "$lte": to_ms(last)}}
            those = {**kept, "$or": [{"changed_ms": at, "id": {"$gt": id_}}, later]}

    async def iterate(
        self,
        kind: str,
        owner: str | None = None,
        *,
        with_gone: bool = False,
        changed_at: Collection[datetime] | None = None,
        batch: int = 500,
    ) -> AsyncIterator[StoredDocument]:
        """See `DocumentStore.iterate`. Uses pages, because the server closes cursors that are idle for long."""
        require_positive("batch", batch)
        those = _those(self.source, require_kind(kind), owner, with_gone=with_gone)
        if changed_at is not None:
            those["changed_ms"] = {"$in": sorted(map(to_ms, changed_at))}
        while True:
            with _errors_told(self.name):
                page = await self._collection.find(those).sort("id", ASCENDING).limit(batch).to_list()
            for found in page:
                yield _stored(found)
            if len(page) < batch:
                return
            those = {**those, "id": {"$gt": page[-1]["id"]}}

    async def _write(self, given: Sequence[Document]) -> int:
        changed = 0
        for _ in range(_MOST_ROUNDS):
            present = await self._present(given)
            writes, notes = self._plan_updates(given, present)
            # Each update names the `rev` that was read, so it does nothing if the document has changed since.
            written = await self._bulk(writes)
            noted = await self._bulk(notes)
            changed += written
            if written == len(writes) and noted == len(notes):
                return min(changed, len(given))
        raise self._contended()

    async def _write_conditionally(self, writes: Sequence[ConditionalWrite]) -> tuple[int, int]:
        """Return the numbers of changed and gone documents. A document changed since its read is decided again."""
        for _ in range(_MOST_ROUNDS):
            counts = {WriteAction.WRITE: 0, WriteAction.REMOVE: 0}
            present = await self._present([each.document for each in writes], fields=None)
            operations = [self._conditional(each, present, counts) for each in writes]
            wanted = [each for each in operations if each is not None]
            # Otherwise some documents changed in between. All are decided again; those that were written are then
            # skipped by their rules.
            if await self._bulk(wanted) == len(wanted):
                return counts[WriteAction.WRITE], counts[WriteAction.REMOVE]
        raise self._contended()

    def _conditional(
        self, write: ConditionalWrite, present: Mapping[str, _Fields], counts: dict[WriteAction, int]
    ) -> UpdateOne | None:
        """Return the update that a rule decides on, or None; count the decision."""
        document, key, now_ms = write.document, _key(self.source, *write.document.key), to_ms(self._clock.now())
        old = present.get(key)
        action = write.decide(None if old is None else _stored(old))
        if action is WriteAction.SKIP:
            return None
        counts[action] += 1
        written = _fields(self.source, document, now_ms)
        gone: _Fields = {"gone_ms": now_ms, "changed_ms": now_ms}
        if old is None:
            first = {**written, "created_ms": now_ms, "sweep": document.sweep, "rev": 1}
            if action is WriteAction.REMOVE:
                first |= {**gone, "fingerprint": document.fingerprint * 2}
            return UpdateOne({"_id": key}, {"$setOnInsert": first}, upsert=True)
        sweep = max(old["sweep"], document.sweep)
        change = {"$set": {**(written if action is WriteAction.WRITE else gone), "sweep": sweep}, "$inc": {"rev": 1}}
        if action is WriteAction.REMOVE:
            change["$mul"] = {"fingerprint": 2}
        return UpdateOne({"_id": key, "rev": old["rev"]}, change)

    def _contended(self) -> DocumentsUnavailable:
        message = f"{self.name}: concurrent writes of the same documents, {_MOST_ROUNDS} times in a row"
        return DocumentsUnavailable(message, server=self.name)

    async def _present(
        self, given: Sequence[Document], fields: Mapping[str, int] | None = _DECIDING
    ) -> Mapping[str, _Fields]:
        ids = [_key(self.source, *document.key) for document in given]
        found = await self._collection.find({"_id": {"$in": ids}}, fields).to_list()
        return {each["_id"]: each for each in found}

    def _plan_updates(
        self, given: Sequence[Document], present: Mapping[str, _Fields]
    ) -> tuple[list[UpdateOne], list[UpdateOne]]:
        """Return updates that insert or replace documents, and updates that only record in which run one was seen."""
        now_ms = to_ms(self._clock.now())
        writes: list[UpdateOne] = []
        notes: list[UpdateOne] = []
        for document in given:
            key = _key(self.source, *document.key)
            old = present.get(key)
            if old is None:
                first = {
                    **_fields(self.source, document, now_ms),
                    "created_ms": now_ms,
                    "sweep": document.sweep,
                    "rev": 1,
                }
                writes.append(UpdateOne({"_id": key}, {"$setOnInsert": first}, upsert=True))
                continue
            unchanged = {"_id": key, "rev": old["rev"]}
            sweep = max(old["sweep"], document.sweep)
            if is_taken(_deciding(old), document):
                change = {"$set": {**_fields(self.source, document, now_ms), "sweep": sweep}, "$inc": {"rev": 1}}
                writes.append(UpdateOne(unchanged, change))
            elif sweep > old["sweep"] and not old["gone_ms"]:
                notes.append(UpdateOne(unchanged, {"$set": {"sweep": sweep}, "$inc": {"rev": 1}}))
        return writes, notes

    async def _bulk(self, operations: Sequence[UpdateOne]) -> int:
        """Number of operations that found the expected document."""
        if not operations:
            return 0
        try:
            done = (await self._collection.bulk_write(operations, ordered=False)).bulk_api_result
        except BulkWriteError as error:
            done: Mapping[str, Any] = error.details or {}
            # Another writer inserted the same document first.
            if {each.get("code") for each in done.get("writeErrors", [{}])} != {_DUPLICATE_KEY}:
                raise
        # An insert that found the document of another writer matches it and changes nothing.
        return int(done["nUpserted"]) + int(done["nModified"])

    async def _mark_missing(self, listing: Listing) -> int:
        now_ms = to_ms(self._clock.now())
        those = {"source": self.source, "kind": listing.kind, "resource": listing.resource}
        unseen = {**those, "sweep": {"$lt": listing.sweep}, "gone_ms": 0}
        change = {"gone_ms": now_ms, "changed_ms": now_ms, "sweep": listing.sweep}
        marked = await self._collection.update_many(
            unseen, {"$set": change, "$inc": {"rev": 1}, "$mul": {"fingerprint": 2}}
        )
        return marked.modified_count


@contextmanager
def _errors_told(name: str) -> Generator[None]:
    """Convert errors of pymongo, and omit their texts, which contain the written data."""
    refused = unavailable = None
    try:
        yield
    except OperationFailure as error:
        if error.code in _REFUSALS:
            refused = "the user has no permission, or the password is wrong"
        else:
            unavailable = f"{type(error).__name__} {error.code}"
    except PyMongoError as error:
        unavailable = type(error).__name__
    if refused is not None:
        raise ServerRefused(name, refused, remedy="Correct the address in the settings")
    if unavailable is not None:
        raise DocumentsUnavailable(f"{name}: {unavailable}", server=name)


def _connect(url: str, name: str) -> "AsyncMongoClient[_Fields]":
    try:
        return AsyncMongoClient(
            url,
            serverSelectionTimeoutMS=_FIND_WITHIN_MS,
            connectTimeoutMS=_FIND_WITHIN_MS,
            socketTimeoutMS=_ANSWER_WITHIN_MS,
        )
    except (InvalidURI, ConfigurationError, ValueError):
        # Its text may contain the password.
        raise InvalidArgument("url", name, "is not an address of a MongoDB server") from None


class _AlreadyWritten:
    def __init__(self, written: Written) -> None:
        self._written = written

    def apply(self, tx: Transaction) -> Written:
        """See `Staged.apply`."""
        del tx
        return self._written


def _key(source: str, kind: str, id_: str) -> str:
    return f"{source}|{kind}|{id_}"  # neither a source nor a kind contains |


def _those(source: str, kind: str, owner: str | None, *, with_gone: bool) -> _Fields:
    conditions: _Fields = {"source": source, "kind": kind}
    if owner is not None:
        conditions["owner"] = owner
    if not with_gone:
        conditions["gone_ms"] = 0
    return conditions


def _fields(source: str, document: Document, now_ms: int) -> _Fields:
    return {
        "source": source,
        "kind": document.kind,
        "id": document.id,
        "owner": document.owner,
        "resource": document.resource,
        "version": document.version,
        "hash": document.hash,
        "fingerprint": document.fingerprint,
        "changed_ms": now_ms,
        "gone_ms": 0,  # a null is not found by every server that is asked for one
        **to_bson(document.text),
    }


def _deciding(found: _Fields) -> StoredVersion:
    return StoredVersion(found["hash"], found["version"], found["sweep"], found["owner"], found["gone_ms"] > 0)


def _stored(found: _Fields) -> StoredDocument:
    return StoredDocument(
        kind=found["kind"],
        id=found["id"],
        owner=found["owner"],
        resource=found["resource"],
        version=found["version"],
        text=from_bson(found),
        created_at=from_ms(found["created_ms"]),
        changed_at=from_ms(found["changed_ms"]),
        gone_at=from_ms(found["gone_ms"]) if found["gone_ms"] else None,
        fingerprint=int(found.get("fingerprint") or _NO_FINGERPRINT),
    )


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2]
    return f"{scheme}://{place.partition('/')[0].partition('?')[0]}"
