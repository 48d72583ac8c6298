"""The export formats; each writes rows in sequence and keeps few of them in memory.

CSV is that of RFC 4180: UTF-8, CRLF and a header line. Texts are always quoted, other values never: `""` is an empty
text, and an empty field is a missing value. Texts are not changed, even if a spreadsheet would interpret them as a
formula. JSON Lines has one document per line, with its body unchanged. Parquet is in `parquet_format`, which needs
pyarrow.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from importlib.util import find_spec
from typing import BinaryIO, Protocol

import msgspec

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import Column, TableShape, Value


class CsvWriter:
    """Writes documents as CSV; see `FileWriter`."""

    def __init__(self, file: BinaryIO, shape: TableShape) -> None:
        self._shape, self._file = shape, file
        self._file.write(_line([column.name for column in shape.columns]).encode())

    def write(self, documents: Sequence[StoredDocument]) -> None:
        """See `FileWriter.write`."""
        self._file.writelines(_line(self._shape.row(document)).encode() for document in documents)

    def finish(self) -> None:
        """See `FileWriter.finish`: nothing is held."""

    def abandon(self) -> None:
        """See `FileWriter.abandon`: nothing is held."""


def _line(row: Sequence[Value]) -> str:
    return ",".join(map(_field, row)) + "\r\n"


def _field(value: Value) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case list():
            return _quoted(msgspec.json.encode(value).decode())
        case str():
            return _quoted(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class DocumentLine(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a line of the file."""

    kind: str
    id: str
    owner: str
    resource: str
    version: str | None
    created_at: datetime
    changed_at: datetime
    gone_at: datetime | None
    body: msgspec.Raw
    """Null if it is not JSON."""
    unreadable: str | msgspec.UnsetType = msgspec.UNSET
    """The body as text if it is not JSON."""


_NULL = msgspec.Raw(b"null")
_encoder = msgspec.json.Encoder()
_checker = msgspec.json.Decoder(msgspec.Raw)


class JsonlWriter:
    """Writes documents as JSON lines; see `FileWriter`."""

    def __init__(self, file: BinaryIO, shape: TableShape) -> None:
        self._shape, self._file = shape, file

    def write(self, documents: Sequence[StoredDocument]) -> None:
        """See `FileWriter.write`."""
        self._file.write(_encoder.encode_lines(map(self._line, documents)))

    def finish(self) -> None:
        """See `FileWriter.finish`: nothing is held."""

    def abandon(self) -> None:
        """See `FileWriter.abandon`: nothing is held."""

    def _line(self, document: StoredDocument) -> DocumentLine:
        body, unreadable = _body(document.text)
        self._shape.unreadable += unreadable is not msgspec.UNSET
        return DocumentLine(
            kind=document.kind,
            id=document.id,
            owner=document.owner,
            resource=document.resource,
            version=document.version,
            created_at=document.created_at,
            changed_at=document.changed_at,
            gone_at=document.gone_at,
            body=body,
            unreadable=unreadable,
        )


def _body(text: str) -> tuple[msgspec.Raw, str | msgspec.UnsetType]:
    """The body on one line: line breaks in JSON occur only between tokens, never in texts."""
    try:
        _checker.decode(text)
    except (ValueError, RecursionError):
        return _NULL, text
    return msgspec.Raw(text.replace("\r", " ").replace("\n", " ")), msgspec.UNSET


class Format(StrEnum):
    """The format of a file; the value is also the suffix of its name."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


def installed_formats() -> tuple[Format, ...]:
    """The available formats, the recommended one first."""
    has_pyarrow = find_spec("pyarrow") is not None
    return tuple(each for each in Format if each is not Format.PARQUET or has_pyarrow)


class FileWriter(Protocol):
    """Writes the documents of one file."""

    def write(self, documents: Sequence[StoredDocument]) -> None:
        """Add documents to the file."""
        ...

    def finish(self) -> None:
        """Write buffered data. The file stays open."""
        ...

    def abandon(self) -> None:
        """Discard buffered data. After `finish` it does nothing."""
        ...


def require_format(format: Format, *, with_body: bool) -> None:  # noqa: A002 - the word of the command line
    """Raise `InvalidArgument` if the format is not available, before anything is written."""
    if format is Format.JSONL and not with_body:
        raise InvalidArgument("format", str(format), "a line is a body; to omit bodies, use csv or parquet")
    if format is Format.PARQUET:
        try:
            import pyarrow as _  # noqa: F401
        except ImportError:
            raise InvalidSettings(
                'Parquet files need the library pyarrow: pip install "tidegate[parquet]". '
                f"Without it there are {Format.CSV} and {Format.JSONL}"
            ) from None


def shape_of(format: Format, fields: Sequence[Column], *, with_body: bool) -> TableShape:  # noqa: A002
    """The columns of a file; a line of JSON has its fields in the body."""
    return TableShape(() if format is Format.JSONL else fields, with_body=with_body)


def open_writer(format: Format, file: BinaryIO, shape: TableShape) -> FileWriter:  # noqa: A002
    """A writer for an open file, which the caller closes."""
    match format:
        case Format.CSV:
            return CsvWriter(file, shape)
        case Format.JSONL:
            return JsonlWriter(file, shape)
        case Format.PARQUET:
            from tidegate.storage.documents.export.parquet_format import ParquetWriter

            return ParquetWriter(file, shape)
