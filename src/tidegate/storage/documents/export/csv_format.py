"""CSV according to RFC 4180: UTF-8, CRLF and a header line.

Texts are always quoted, other values never: `""` is an empty text, and an empty field is a missing value. Texts are not
changed, even if a spreadsheet would interpret them as a formula.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import BinaryIO

import msgspec

from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import TableShape, Value


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
