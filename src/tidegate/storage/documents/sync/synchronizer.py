"""Brings the tables of a destination up to date with the documents of one source.

What changed is found by comparison: for each moment, the store and the destination tell how many documents last changed
then, and the sum of their fingerprints (`ChangeDigest`). Documents at moments that differ are read and written. The
rows are the position, so it cannot be wrong: not when a transaction is committed late, a clock is behind, or a sync is
killed.

A document that changes leaves its former moment, which then differs too. So the first pass reads only moments at which
the destination lacks something; the second pass reads what still differs, which is usually nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import Column
from tidegate.storage.documents.store import ChangeDigest, DocumentStore
from tidegate.storage.documents.sync.destination import Destination, DestinationAddress, Table, open_destination
from tidegate.storage.documents.sync.table import RowMaker, Rows, SyncTable

_MOMENTS_AT_ONCE = 10_000
_READ_AT_ONCE = 2_000
_MOST_PASSES = 10
"""Of a full sync, while documents change; rows without a document then stay until the next full sync."""
_FEW = 100
"""Documents that are read and dropped rather than beginning another query."""
_ROWS_AT_ONCE = 50_000
_CHARACTERS_AT_ONCE = 64 * 1024 * 1024


class SyncProgress(msgspec.Struct, frozen=True):
    """Progress of the table of a kind."""

    kind: str
    read: int
    total: int
    """As counted before; while documents are being collected, more may come."""


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a sync for one table."""

    kind: str
    documents: int
    """In the store, with those that are gone upstream."""
    written: int
    """Rows that are new or different. In a dry run: documents that would be read and compared."""
    removed: int
    """Rows without a document, which only a full sync removes."""
    misfits: Mapping[str, int]
    """How many values of a column were left empty, because they were of another type."""
    unreadable: int
    """Documents with a body that is no JSON, so that their columns are empty."""


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a sync."""

    to: str
    source: str
    dry_run: bool
    full: bool
    tables: Sequence[TableReport]

    @property
    def written(self) -> int:
        """Rows that are new or different, in all tables."""
        return sum(table.written for table in self.tables)


class SyncOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Source, kinds and destination of a sync."""

    to: DestinationAddress
    kinds: Mapping[str, Sequence[Column]]
    """The kinds of documents, a table for each, with the columns that the source declares."""
    full: bool = False
    dry_run: bool = False


def _ignore(_progress: SyncProgress) -> None:
    """Default for `on_progress`: do nothing."""


async def sync(
    store: DocumentStore, order: SyncOrder, *, on_progress: Callable[[SyncProgress], None] = _ignore
) -> SyncReport:
    """Bring the tables of the documents in `store` up to date.

    Documents that change meanwhile may be written by the next sync. Raises `SyncFailed` where the destination cannot be
    used; what was written before stays, and the next sync continues.
    """
    destination = await open_destination(order.to, store.source, read_only=order.dry_run)
    try:
        tables = [await _KindSync(store, destination, order, kind, on_progress).run() for kind in sorted(order.kinds)]
    finally:
        await destination.close()
    return SyncReport(to=order.to.shown, source=store.source, dry_run=order.dry_run, full=order.full, tables=tables)


class _KindSync:
    """The sync of one table."""

    def __init__(
        self,
        store: DocumentStore,
        destination: Destination,
        order: SyncOrder,
        kind: str,
        on_progress: Callable[[SyncProgress], None],
    ) -> None:
        self._store, self._destination, self._order, self._kind = store, destination, order, kind
        self._on_progress = on_progress
        self._table = SyncTable.of(store.source, kind, order.kinds[kind])
        self._maker = RowMaker(self._table, order.kinds[kind])
        self._read = self._total = 0

    async def run(self) -> TableReport:
        """Compare, and write unless it is a dry run."""
        documents = await self._store.count(self._kind, with_gone=True)
        self._total = documents
        removed = 0
        if self._order.dry_run:
            written = await self._count()
        else:
            table = await self._destination.open_table(self._table, full=self._order.full)
            written, is_certain = await self._write(table)
            removed = await table.finish(full=self._order.full and is_certain)
        return TableReport(
            kind=self._kind,
            documents=documents,
            written=written,
            removed=removed,
            misfits=dict(sorted(self._maker.reader.misfits.items())),
            unreadable=self._maker.reader.unreadable,
        )

    async def _count(self) -> int:
        table = None if self._order.full else await self._destination.peek(self._table)
        if table is None:
            return self._total
        async with aclosing(self._differing(table)) as pages:
            return sum([each.documents async for lacking, _ in pages for run in lacking for each in run])

    async def _write(self, table: Table) -> tuple[int, bool]:
        """Both passes. Returns how many rows were written, and whether a row without a fingerprint has no document.

        A document that changes in a full sync may leave its former moment before that is read. Its row would be
        removed, so a full sync reads what is lacking until nothing is.
        """
        writer, is_certain = _TableWriter(table, self._maker), False
        try:
            others, _ = await self._copy_lacking(table, writer)
            # Before the comparison, which has to see the rows of the first pass.
            await writer.flush()
            if others:
                # Read again: the first pass may have removed the difference, because a changed document left its former
                # moment.
                there = await table.moments(None, others[-1].at)
                differing = [each for each in others if there.get(each.at) != each]
                self._advance(sum(each.documents for each in others) - sum(each.documents for each in differing))
                await self._copy([[each] for each in differing], writer)
                await writer.flush()
            for _ in range(_MOST_PASSES if self._order.full else 0):
                _, is_certain = await self._copy_lacking(table, writer)
                await writer.flush()
                if is_certain:
                    break
        finally:
            await writer.stop()
        return writer.written, is_certain

    async def _copy_lacking(self, table: Table, writer: "_TableWriter") -> tuple[list[ChangeDigest], bool]:
        """Copy the documents of all moments that the destination lacks (see `ChangeDigest`).

        Returns the moments that differ in another way, and True if the destination lacked none.
        """
        others, is_complete = list[ChangeDigest](), True
        async with aclosing(self._differing(table)) as pages:
            async for lacking, left in pages:
                others += left
                is_complete = is_complete and not lacking
                await self._copy(lacking, writer)
                await writer.settle()  # the destination does one thing at a time
        return others, is_complete

    async def _differing(self, table: Table) -> AsyncGenerator[tuple[list[list[ChangeDigest]], list[ChangeDigest]]]:
        """Compare page by page; return ranges of moments that the destination lacks, and other moments that differ."""
        page, after = list[ChangeDigest](), None
        while after is None or len(page) == _MOMENTS_AT_ONCE:  # more were written meanwhile where it ends early
            page = list(await self._store.moments(self._kind, after=after, limit=_MOMENTS_AT_ONCE))
            if not page:
                return
            there = await table.moments(after, page[-1].at)
            matched = sum(each.documents for each in page if there.get(each.at) == each)
            self._advance(matched)
            lacking, others, between = list[list[ChangeDigest]](), list[ChangeDigest](), _FEW + 1
            for each in page:
                present = there.get(each.at)
                # Equal; or the destination has more, since a document left this moment and is found at its new one.
                if present == each or (present is not None and present.documents > each.documents):
                    between += each.documents
                    if present != each:
                        others.append(each)
                    continue
                if between > _FEW:
                    lacking.append([])
                lacking[-1].append(each)
                between = 0
            yield lacking, others
            after = page[-1].at

    async def _copy(self, runs: Sequence[Sequence[ChangeDigest]], writer: "_TableWriter") -> None:
        """Read the documents of these moments, and write them."""
        async with aclosing(_pages(self._store, self._kind, runs)) as pages:
            async for documents in pages:
                await writer.add(documents)
                self._advance(len(documents))

    def _advance(self, count: int) -> None:
        self._read += count
        self._on_progress(SyncProgress(self._kind, self._read, max(self._total, self._read)))


class _TableWriter:
    """Collects rows and writes many at once, while the next ones are read."""

    def __init__(self, table: Table, maker: RowMaker) -> None:
        self._table, self._maker = table, maker
        self._rows, self._characters = Rows(maker.table), 0
        self._writing: asyncio.Task[int] | None = None
        self.written = 0

    async def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add documents; one that is among the rows already was changed in between, and is written after them."""
        if any(each.id in self._rows.ids for each in documents):
            await self._write()
        self._maker.add(self._rows, documents)
        self._characters += sum(len(each.text) for each in documents)
        if len(self._rows) >= _ROWS_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            await self._write()

    async def flush(self) -> None:
        """Write the remaining rows, and wait until they are written."""
        await self._write()
        await self.settle()

    async def settle(self) -> None:
        """Wait for the running write."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            self.written += await writing

    async def stop(self) -> None:
        """Wait for the end of the running write, also if it fails; unwritten rows are dropped."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
            self._writing = None

    async def _write(self) -> None:
        rows, self._rows, self._characters = self._rows, Rows(self._maker.table), 0
        # One write at a time: a later version of a row must not be overtaken by an earlier one.
        await self.settle()
        if rows:
            self._writing = asyncio.create_task(self._table.write(rows))


async def _pages(
    store: DocumentStore, kind: str, runs: Sequence[Sequence[ChangeDigest]]
) -> AsyncGenerator[list[StoredDocument]]:
    """Read the documents of ranges of moments, in pages of some thousand with unique ids."""
    page = dict[str, StoredDocument]()
    for run in runs:
        wanted = {each.at for each in run}
        async for document in store.iterate_changes(kind, run[0].at, run[-1].at, batch=_READ_AT_ONCE):
            if document.changed_at in wanted:
                page[document.id] = document
                if len(page) >= _READ_AT_ONCE:
                    yield list(page.values())
                    page.clear()
    if page:
        yield list(page.values())
