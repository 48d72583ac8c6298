"""Documents: items of an upstream to be written, and stored ones."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
from pydantic import BaseModel, Field
from xxhash import xxh3_64_intdigest

from tidegate.core.arguments import require_at_most, require_name, require_not_negative
from tidegate.core.errors import InvalidArgument


class DocumentSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the document store: where collected items are stored."""

    url: str | None = Field(default=None, repr=False, pattern=r"^mongodb(\+srv)?://.+")
    """A MongoDB, `mongodb://host/name` or `mongodb+srv://…`; else the database that holds everything else."""


LARGEST_BODY = 4 * 1024 * 1024
"""In bytes of JSON. All servers accept statements or documents of that size in their default configuration."""

LONGEST_SOURCE = 40
LONGEST_KIND = 64
LONGEST_TEXT = 200
LONGEST_VERSION = 64
HASH_LENGTH = 32

_FINGERPRINT_BITS = 39
"""The sum over four million documents, half of them gone (which doubles the number), fits 63 bits."""

_DIGITS = 20  # as many as the largest 64-bit number has
_LARGEST_NUMBER = 2**63 - 1
_encoder = msgspec.json.Encoder(order="deterministic")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an upstream, checked and ready to be written. Made by `Document.of`."""

    kind: str
    id: str
    owner: str
    resource: str
    text: str
    """The body as JSON."""
    version: str | None
    sweep: int
    hash: str
    """Hash of all fields above except kind, id and sweep, to detect changes."""
    fingerprint: int
    """Number from kind, id and hash; the sum identifies a set of documents. Doubled when the document is gone."""

    @classmethod
    def of(
        cls,
        kind: str,
        id: str,  # noqa: A002 - it is one, and keywords are how people call this
        *,
        owner: str,
        resource: str,
        body: Mapping[str, Any] | msgspec.Raw,
        version: int | str | None = None,
        sweep: int = 0,
    ) -> "Document":
        """The document `id` among those of its `kind`, or `InvalidArgument` if no store could take it.

        `owner` is the user for which it was collected, `resource` the list that contains it (`repo:octocat/hello`);
        both follow the newest write. `body` is JSON: a mapping, or the bytes of the upstream as `msgspec.Raw`, which
        are not encoded again. `version` orders versions of a document: a number, or a text that sorts, like a time in
        UTC; an older version never replaces a newer one. `sweep` is the number of the run that saw the document, higher
        for later runs; see `Listing`.
        """
        require_kind(kind)
        _require_text("id", id, LONGEST_TEXT)
        _require_shared_text("owner", owner, LONGEST_TEXT)
        _require_shared_text("resource", resource, LONGEST_TEXT)
        require_not_negative("sweep", sweep)
        require_at_most("sweep", sweep, _LARGEST_NUMBER)
        encoded, text = _encoded(body)
        sortable = _sortable(version)
        # None of the fields contains U+0000, so different fields never give the same text.
        digest = blake2b("\0".join((owner, resource, sortable or "", "")).encode(), digest_size=HASH_LENGTH // 2)
        digest.update(encoded)
        hash_ = digest.hexdigest()
        return cls(
            kind=kind,
            id=id,
            owner=owner,
            resource=resource,
            text=text,
            version=sortable,
            sweep=sweep,
            hash=hash_,
            # Never 0, which marks rows of a destination that a sync has to compare again.
            fingerprint=1 + (xxh3_64_intdigest(f"{kind}\0{id}\0{hash_}".encode()) >> (64 - _FINGERPRINT_BITS)),
        )

    @property
    def key(self) -> tuple[str, str]:
        """Kind and id, which identify the document."""
        return self.kind, self.id

    def __repr__(self) -> str:
        return f"Document({self.kind} {self.id}, version={self.version}, {len(self.text)} characters)"


class StoredDocument(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A document in the store."""

    kind: str
    id: str
    owner: str
    resource: str
    version: str | None
    """A number is returned as digits with leading zeros, so that it sorts."""
    text: str
    created_at: datetime
    changed_at: datetime
    """When it last changed, became missing, or came back."""
    gone_at: datetime | None
    """The time since which the upstream lacks it; None if it exists."""
    fingerprint: int
    """Of what the document is now: see `ChangeDigest`."""

    @property
    def body(self) -> dict[str, Any]:
        """The decoded body; decoded again at each call."""
        return msgspec.json.decode(self.text)

    def body_as(self, kind: type[Any]) -> Any:
        """The body as a struct, which is faster and uses only the fields it names."""
        return msgspec.json.decode(self.text, type=kind)


def require_source(source: str) -> str:
    """Return a valid name of a source; raises `InvalidArgument` otherwise."""
    return _require_text("source", require_name("source", source), LONGEST_SOURCE)


def require_kind(kind: str) -> str:
    """Return a valid kind of documents; raises `InvalidArgument` otherwise."""
    return _require_shared_text("kind", require_name("kind", kind), LONGEST_KIND)


def _encoded(body: Mapping[str, Any] | msgspec.Raw) -> tuple[bytes, str]:
    try:
        if isinstance(body, msgspec.Raw):
            encoded = bytes(body)
        else:
            encoded = _encoder.encode(body if isinstance(body, dict) else dict(body))
        text = encoded.decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgument("body", type(body).__name__, f"must be JSON: {error}") from None
    if not encoded.startswith(b"{"):
        raise InvalidArgument("body", type(body).__name__, "must be a JSON object")
    require_at_most("bytes in the body", len(encoded), LARGEST_BODY)
    return encoded, text


def _sortable(version: int | str | None) -> str | None:
    """A version as text with the same order."""
    if version is None:
        return None
    if isinstance(version, int):
        require_not_negative("version", version)
        require_at_most("version", version, _LARGEST_NUMBER)
        return str(version).zfill(_DIGITS)
    return _require_text("version", version, LONGEST_VERSION)


def _require_text(name: str, value: str, longest: int) -> str:
    if not value:
        raise InvalidArgument(name, value, "must not be empty")
    if len(value) > longest:
        raise InvalidArgument(name, value[:32] + "…", f"must have at most {longest} characters")
    # Some servers treat "a" and "a " as equal.
    if not value.isprintable() or value[0] == " " or value[-1] == " ":
        raise InvalidArgument(name, value, "must be printable and not begin or end with a space")
    return value


_require_shared_text = lru_cache(maxsize=1024)(_require_text)
"""The same for texts that many documents have in common, such as all documents of a page."""
