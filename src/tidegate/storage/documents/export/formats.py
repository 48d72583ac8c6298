"""The export formats; each writes rows in sequence and keeps few of them in memory."""

from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from typing import BinaryIO, Protocol

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import Column, TableShape
from tidegate.storage.documents.export.csv_format import CsvWriter
from tidegate.storage.documents.export.jsonl_format import JsonlWriter


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
