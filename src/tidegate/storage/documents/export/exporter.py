"""Exports documents to one file per kind, in batches, so that memory use does not grow."""

import errno
import hashlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from tidegate import __version__
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import Column
from tidegate.storage.documents.export.folder import ColumnEntry, ExportFolder, FileEntry, Manifest
from tidegate.storage.documents.export.formats import FileWriter, Format, open_writer, require_format, shape_of
from tidegate.storage.documents.store import DocumentStore

_AT_ONCE = 500
_ELSEWHERE = "Give another folder with --output"
_ADVICE = {
    errno.EEXIST: f"It is not a folder. {_ELSEWHERE}",
    errno.ENOTDIR: f"A part of the path is not a folder. {_ELSEWHERE}",
    errno.EACCES: f"This user may not write there. {_ELSEWHERE}",
    errno.EPERM: f"This user may not write there. {_ELSEWHERE}",
    errno.EROFS: f"The file system is read-only. {_ELSEWHERE}",
    errno.ENOSPC: "Free disk space, give a folder on a larger disk, or export less (--kind, --no-body)",
    errno.EDQUOT: f"The disk quota of this user is used up. {_ELSEWHERE}",
}


class ExportFailed(TidegateError):
    """The files could not be written; no partial file is left."""

    def __init__(self, folder: Path, error: OSError) -> None:
        cause, advice = error.strerror or str(error), _ADVICE.get(error.errno or 0, "Repeat the export when it can be")
        super().__init__(f"{folder}: {cause}; no partial file was left. {advice}")
        self.folder = folder


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds, owners and format of an export."""

    format: Format
    kinds: Mapping[str, Sequence[Column]]
    """The kinds of documents, with one file each, and their columns in addition to those of all documents."""
    owners: Sequence[str] | None = None
    """Owners of the documents; None means all owners."""
    with_gone: bool = False
    """Include documents that the upstream no longer has."""
    with_body: bool = True

    def __post_init__(self) -> None:
        if not self.kinds:
            raise InvalidArgument("kinds", dict(self.kinds), "there is nothing to export")
        require_format(self.format, with_body=self.with_body)


class ExportProgress(msgspec.Struct, frozen=True):
    """Progress of the file of a kind."""

    kind: str
    written: int
    total: int
    """Number of documents before the export; it may grow during a collection."""


def _ignore_progress(_progress: ExportProgress) -> None:
    """Default for `on_progress`."""


async def export(
    store: DocumentStore,
    folder: Path,
    request: ExportRequest,
    *,
    force: bool = False,
    clock: Clock | None = None,
    on_progress: Callable[[ExportProgress], None] = _ignore_progress,
) -> Manifest:
    """Export to `folder`, and return the manifest.

    Documents are ordered by owner and id, so equal documents give equal files. Files get their final names when all are
    complete; then they replace an older export. Raises `ExportRefused` if the folder contains other files (unless
    `force`), and `ExportFailed` if it cannot be written.
    """
    clock = clock or SystemClock()
    try:
        with ExportFolder(folder, force=force) as placed:
            started_at = clock.now()
            files = [await _export_kind(store, placed, request, kind, on_progress) for kind in request.kinds]
            return placed.publish(_manifest(store, request, files, started_at, clock.now()))
    except OSError as error:
        raise ExportFailed(folder, error) from error


async def export_stream(
    store: DocumentStore,
    stream: BinaryIO,
    request: ExportRequest,
    *,
    on_progress: Callable[[ExportProgress], None] = _ignore_progress,
) -> int:
    """Export to an open stream, one kind after the other; returns the number of documents.

    There is no manifest, and output before an error is not removed. Raises `InvalidArgument` for Parquet, and for CSV
    with several kinds, because CSV has one header line.
    """
    if request.format is Format.PARQUET:
        raise InvalidArgument(
            "format", str(request.format), "cannot be written to a stream: use jsonl or csv, or a folder"
        )
    if request.format is Format.CSV and len(request.kinds) > 1:
        raise InvalidArgument("kinds", ", ".join(request.kinds), "have different columns: give one kind, or use jsonl")
    written = 0
    for kind in request.kinds:
        shape = shape_of(request.format, request.kinds[kind], with_body=request.with_body)
        written += await _write_kind(store, open_writer(request.format, stream, shape), request, kind, on_progress)
    stream.flush()
    return written


async def _export_kind(
    store: DocumentStore,
    folder: ExportFolder,
    request: ExportRequest,
    kind: str,
    on_progress: Callable[[ExportProgress], None],
) -> FileEntry:
    """Write the file of a kind under its temporary name; return its entry of the manifest."""
    name = f"{kind}.{request.format}"
    path, shape = folder.partial(name), shape_of(request.format, request.kinds[kind], with_body=request.with_body)
    with path.open("wb") as file:
        written = await _write_kind(store, open_writer(request.format, file, shape), request, kind, on_progress)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(
        kind=kind,
        file=name,
        documents=written,
        bytes=path.stat().st_size,
        sha256=_sha256(path),
        columns=[ColumnEntry(column.name, column.type) for column in shape.columns],
        misfits=dict(sorted(shape.misfits.items())),
        unreadable=shape.unreadable,
    )


async def _write_kind(
    store: DocumentStore,
    writer: FileWriter,
    request: ExportRequest,
    kind: str,
    on_progress: Callable[[ExportProgress], None],
) -> int:
    """Write the documents of a kind; returns their number."""
    owners, written = _owners(request), 0
    try:
        total = sum([await store.count(kind, owner, with_gone=request.with_gone) for owner in owners])
        on_progress(ExportProgress(kind, 0, total))
        for owner in owners:
            async with aclosing(_batches(store, kind, owner, with_gone=request.with_gone)) as batches:
                async for batch in batches:
                    writer.write(batch)
                    written += len(batch)
                    on_progress(ExportProgress(kind, written, max(total, written)))
        writer.finish()
    finally:
        writer.abandon()
    return written


def _owners(request: ExportRequest) -> Sequence[str | None]:
    return [None] if request.owners is None else sorted(set(request.owners))


async def _batches(
    store: DocumentStore, kind: str, owner: str | None, *, with_gone: bool
) -> AsyncGenerator[list[StoredDocument]]:
    batch: list[StoredDocument] = []
    async for document in store.iterate(kind, owner, with_gone=with_gone, batch=_AT_ONCE):
        batch.append(document)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _manifest(
    store: DocumentStore, request: ExportRequest, files: list[FileEntry], started_at: datetime, finished_at: datetime
) -> Manifest:
    """Return the manifest of a complete export."""
    return Manifest(
        complete=True,
        format=request.format,
        written_by=f"tidegate {__version__}",
        store=store.name,
        source=store.source,
        owners=None if request.owners is None else sorted(set(request.owners)),
        with_gone=request.with_gone,
        with_body=request.with_body,
        started_at=started_at,
        finished_at=finished_at,
        documents=sum(each.documents for each in files),
        files=files,
        placed=[],
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
