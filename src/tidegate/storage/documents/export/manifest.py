"""The manifest of an export: its contents, and checksums to verify them."""

from datetime import datetime

import msgspec

from tidegate.core.errors import UNDECODABLE

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
