"""What is kept fresh: a kind of snapshot says how to ask for one subject, and what of the answer is kept.

A kind is pure: no clock, no network, no database. The engine coalesces, waits, calls, compares and writes.

How bodies are kept: compressed, and known by a hash.
"""

import threading
from datetime import timedelta
from typing import Protocol

import msgspec
import xxhash
import zstandard

from tidegate.core.arguments import require_name
from tidegate.core.errors import UNDECODABLE, InvalidArgument, TidegateError
from tidegate.engine.upstream import Answer, Request

LONGEST_KEY = 120
LONGEST_UPSTREAM_ID = 200


class FoundSubject(msgspec.Struct, frozen=True):
    """What the upstream has, reduced to what is kept."""

    body: bytes
    """JSON. The same content must give the same bytes: a snapshot counts as changed when they differ."""
    identity: str
    """The subject of the answer, read from the answer itself and never from the request.

    The key of the subject, or the `upstream_id` that the request was made with. Anything else is a dead letter: the
    upstream answered for another subject.
    """
    upstream_id: str | None = None
    """What the upstream calls the subject, where that is not its key; the next request is given it.

    At most 200 printable characters.
    """


class MissingSubject(msgspec.Struct, frozen=True):
    """The upstream says that there is no such subject."""

    reason: str


class UnreadableAnswer(TidegateError):
    """The answer is not what this kind of snapshot expects; asking again at once would not help."""


class SnapshotKind(Protocol):
    """One kind of subject of one upstream."""

    @property
    def name(self) -> str:
        """What addresses and settings call it."""
        ...

    @property
    def ttl(self) -> timedelta:
        """For how long a snapshot counts as fresh after it was checked."""
        ...

    def request(self, key: str, upstream_id: str | None) -> Request:
        """The call that brings the subject `key`."""
        ...

    def read(self, key: str, answer: Answer) -> FoundSubject | MissingSubject:
        """What an answer of status 200 or 404 means; raises `UnreadableAnswer`. Others are the engine's to judge."""
        ...


class SnapshotSubject(msgspec.Struct, frozen=True, order=True):
    """One thing that is kept fresh."""

    kind: str
    key: str

    def __post_init__(self) -> None:
        require_name("kind", self.kind)
        if "/" in self.kind:
            raise InvalidArgument("kind", self.kind, "must not contain /")
        if not self.key or len(self.key) > LONGEST_KEY or not self.key.isprintable() or self.key != self.key.strip():
            raise InvalidArgument("key", self.key[:32], f"must be 1 to {LONGEST_KEY} printable characters")

    @property
    def id(self) -> str:
        """Its name among all kinds: what messages are keyed by."""
        return f"{self.kind}/{self.key}"

    @classmethod
    def from_id(cls, text: str) -> "SnapshotSubject":
        """The subject of this name."""
        kind, _, key = text.partition("/")
        return cls(kind, key)


LARGEST_BODY = 8 * 1024 * 1024
_per_thread = threading.local()
_walker = msgspec.json.Decoder(msgspec.Raw)


def digest(body: bytes) -> str:
    """A name for the content; nobody gains by forging it, so it need only be fast."""
    return xxhash.xxh3_64_hexdigest(body)


def on_one_line(body: bytes) -> bytes:
    """The same JSON without line breaks: it is told in lines, of events and of commands. What is no JSON is refused."""
    try:
        body.decode()  # a walk over JSON does not look into its texts
        _walker.decode(body)
        return msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body
    except UNDECODABLE as error:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must be JSON: {error}") from None


def pack(body: bytes) -> bytes:
    """Compressed."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """As it was."""
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)
