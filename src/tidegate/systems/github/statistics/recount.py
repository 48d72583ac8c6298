"""Updates the items of a user to match the stored documents, reading only documents that differ.

No time of a previous recount is stored: `DocumentStore.changes` and the same query on the items show at which times
they differ. So a document that was committed late, with an early time, is found like any other.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from tidegate.core.telemetry.logs import get_logger
from tidegate.storage.documents import DocumentStore, StoredDocument
from tidegate.storage.sql import Database
from tidegate.systems.github.statistics import item_store
from tidegate.systems.github.statistics.facts import READERS, Fact, fact_of
from tidegate.systems.github.statistics.item_store import ComputationReplaced, CountedItem, RecountPass

log = get_logger(__name__)

_AT_ONCE = 1000
_MOMENTS_AT_ONCE = 200
_MOST_CLAIMS = 5


class Recount:
    """One pass over the documents of a user; `full` reads all of them."""

    def __init__(self, database: Database, documents: DocumentStore, held: RecountPass, *, full: bool) -> None:
        self._database, self._documents = database, documents
        self._pass, self._full = held, full
        self.read = 0
        """Number of documents read."""

    async def run(self) -> None:
        """Count all kinds. Raises `ComputationReplaced` if another pass began in the meantime."""
        for kind in READERS:
            await (self._count_all(kind) if self._full else self._count_changed(kind))

    async def _count_all(self, kind: str) -> None:
        await self._write(kind, None)
        await self._database.transaction(item_store.sweep, self._pass, kind, None)

    async def _count_changed(self, kind: str) -> None:
        """Count added and changed documents first; then remove items where there are still too many."""
        there = await self._documents.changes(kind, self._pass.user_id)
        counted = await self._counted(kind)
        # The usual case after a run without changes: two grouped queries, and no document is read.
        if there == counted:
            return
        # Where more documents than items have a time, documents were added or changed.
        await self._write(kind, [at for at, number in there.items() if number > counted.get(at, 0)])
        counted = await self._counted(kind)
        # An item that changed was moved to its new time by the step above. What is left over is gone,
        # or moved to another user.
        if too_many := {at for at, number in counted.items() if number > there.get(at, 0)}:
            await self._write(kind, too_many & there.keys())
            await self._database.transaction(item_store.sweep, self._pass, kind, too_many)

    async def _counted(self, kind: str) -> Mapping[datetime, int]:
        return await self._database.read(item_store.counted_changes, self._pass.user_id, kind)

    async def _write(self, kind: str, moments: Collection[datetime] | None) -> None:
        """Count all documents, or those that changed at given times."""
        for some in [None] if moments is None else _parts(sorted(moments)):
            batch: list[CountedItem] = []
            async for document in self._documents.iterate(kind, self._pass.user_id, changed_at=some):
                batch.append(CountedItem.of(document, _readable(document)))
                if len(batch) == _AT_ONCE:
                    await self._write_batch(kind, batch)
                    batch = []
            if batch:
                await self._write_batch(kind, batch)

    async def _write_batch(self, kind: str, batch: Sequence[CountedItem]) -> None:
        self.read += len(batch)
        claims = await self._database.transaction(item_store.write, self._pass, kind, batch)
        # Each round needs a conflict with another computation, so a few are enough.
        for _ in range(_MOST_CLAIMS):
            if not claims:
                return
            disputed = {claim.id for claim in claims}
            ours = await self._look_again(kind, [each for each in batch if each.id in disputed])
            taken = [claim for claim in claims if claim.id in {each.id for each in ours}]
            claims = await self._database.transaction(item_store.write, self._pass, kind, ours, taken) if ours else []
        # The caller begins again with a new pass, after a pause.
        raise ComputationReplaced(self._pass.user_id)

    async def _look_again(self, kind: str, disputed: Sequence[CountedItem]) -> list[CountedItem]:
        """The disputed items that still belong to this user and are unchanged, after the other claim was seen."""
        ids, moments = {each.id for each in disputed}, {each.changed_at for each in disputed}
        still = self._documents.iterate(kind, self._pass.user_id, changed_at=moments)
        return [CountedItem.of(document, _readable(document)) async for document in still if document.id in ids]


def _readable(document: StoredDocument) -> Fact:
    fact = fact_of(document)
    if fact is None:
        log.warning("statistics.document_unreadable", kind=document.kind, document=document.id)
        return Fact(resource=document.resource)
    return fact


def _parts(moments: Sequence[datetime]) -> Iterator[Sequence[datetime]]:
    for start in range(0, len(moments), _MOMENTS_AT_ONCE):
        yield moments[start : start + _MOMENTS_AT_ONCE]
