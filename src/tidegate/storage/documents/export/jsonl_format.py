"""JSON Lines: one document per line, with its body unchanged."""

from collections.abc import Sequence
from datetime import datetime
from typing import BinaryIO

import msgspec

from tidegate.storage.documents.document import StoredDocument
from tidegate.storage.documents.export.columns import TableShape


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
