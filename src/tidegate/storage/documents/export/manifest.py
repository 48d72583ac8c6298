"""What an export says of itself: what is in it, and how to see that it is whole."""

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
    """How many values of a column were left empty, because they were not what the column promises."""
    unreadable: int
    """Documents with a body that is not JSON, so that their columns are empty."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole export. `complete` is false while its files are put in place, and after a crash in that moment."""

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
    """Every file in the folder that belongs to this export, or to one that it replaces."""


class OwnedFiles(msgspec.Struct, frozen=True):
    """What has to be read of an older manifest, of whatever version: which files are ours to replace."""

    tidegate_export: int
    placed: list[str] = []


def encode(manifest: Manifest) -> bytes:
    """As it stands in its file, for people too."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_claim(text: bytes) -> OwnedFiles | None:
    """None where it is no manifest of ours."""
    try:
        return msgspec.json.decode(text, type=OwnedFiles)
    except UNDECODABLE:
        return None
