"""The folder of an export, and its manifest: the contents of the files, and checksums to verify them.

Files get their final names when all are complete; the manifest is written last. A file is written under a name that
starts with a dot and ends with `.tidegate-partial`; the next export removes such files after a crash. Other files in
the folder are changed only if a manifest of an export lists them.
"""

import fcntl
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from tidegate.core.errors import UNDECODABLE, TidegateError

NAME = "manifest.json"
VERSION = 1


class ColumnEntry(msgspec.Struct, frozen=True):
    """A column of a file."""

    name: str
    type: str


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the export."""

    kind: str
    file: str
    documents: int
    bytes: int
    sha256: str
    columns: list[ColumnEntry]
    misfits: dict[str, int]
    """Number of values per column that were left empty because of a wrong type."""
    unreadable: int
    """Documents with a body that is not JSON, so that their columns are empty."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole export. `complete` is false while its files get their final names, and after a crash meanwhile."""

    tidegate_export: int = VERSION
    complete: bool
    format: str
    written_by: str
    store: str
    source: str
    """Name of the source that collected the documents."""
    owners: list[str] | None
    """Owners of the documents; null means all owners."""
    with_gone: bool
    with_body: bool
    started_at: datetime
    finished_at: datetime
    documents: int
    files: list[FileEntry]
    placed: list[str]
    """All files in the folder that belong to this export, or to one that it replaces."""


class OwnedFiles(msgspec.Struct, frozen=True):
    """The fields of a manifest of any version that an export needs: the files that it may replace."""

    tidegate_export: int
    placed: list[str] = []


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_claim(text: bytes) -> OwnedFiles | None:
    """Read a manifest of any version; None if the text is not a manifest."""
    try:
        return msgspec.json.decode(text, type=OwnedFiles)
    except UNDECODABLE:
        return None


_PARTIAL = ".tidegate-partial"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class ExportRefused(TidegateError):
    """The folder belongs to another export or is in use; nothing in it was changed."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder}: {reason}")
        self.folder, self.reason = folder, reason


class ExportFolder:
    """Locks the folder of an export for the length of a block; unfinished files are removed at its end."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._path, self._force = path, force
        self._placed: set[str] = set()
        self._was_made = False
        self._lock: int | None = None

    def __enter__(self) -> Self:
        self._was_made = not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        # The lock is on the folder itself, so it leaves no file behind and ends with the process.
        self._lock = os.open(self._path, os.O_RDONLY)
        try:
            self._take_hold()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_leftovers()
        if self._was_made and error is not None:
            with suppress(OSError):
                self._path.rmdir()
        if self._lock is not None:
            os.close(self._lock)

    def partial(self, name: str) -> Path:
        """The temporary path of the file `name`."""
        if not _PLAIN_NAME.fullmatch(name):
            raise ExportRefused(self._path, f"{name!r} cannot be the name of a file: letters, digits, _, . and - can")
        return self._path / f".{name}{_PARTIAL}"

    def publish(self, manifest: Manifest) -> Manifest:
        """Give all files their final names, and remove files of an older export that are not replaced.

        A crash in between leaves an incomplete manifest, and the next export repairs the folder.
        """
        names = [each.file for each in manifest.files]
        # First the manifest names every file that this export owns: after a crash, the next export knows which files it
        # may remove.
        self._write_manifest(
            msgspec.structs.replace(manifest, complete=False, placed=sorted(self._placed.union(names)))
        )
        for name in names:
            self.partial(name).replace(self._path / name)
        for name in self._placed.difference(names):
            (self._path / name).unlink(missing_ok=True)
        whole = msgspec.structs.replace(manifest, complete=True, placed=sorted(names))
        self._write_manifest(whole)
        return whole

    def _take_hold(self) -> None:
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportRefused(self._path, "another export is writing to it; wait, or give another folder") from None
        present = [entry.name for entry in self._path.iterdir() if not _is_leftover(entry.name)]
        claim = self._claim() if NAME in present else None
        if present and claim is None and not self._force:
            raise ExportRefused(
                self._path, "it is not empty and not an export; give another folder, or write into it with --force"
            )
        if claim is not None:
            self._placed = {name for name in claim.placed if _PLAIN_NAME.fullmatch(name)}
        self._remove_leftovers()

    def _claim(self) -> OwnedFiles | None:
        path = self._path / NAME
        return read_claim(path.read_bytes()) if path.is_file() else None

    def _write_manifest(self, manifest: Manifest) -> None:
        partial = self.partial(NAME)
        with partial.open("wb") as file:
            file.write(encode(manifest))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path / NAME)
        if self._lock is not None:
            os.fsync(self._lock)  # makes the names durable

    def _remove_leftovers(self) -> None:
        for entry in list(self._path.iterdir()):
            if _is_leftover(entry.name):
                entry.unlink(missing_ok=True)


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith(_PARTIAL)
