"""Subjects, kinds of snapshots, and how bodies are stored.

A kind says how one subject is requested and which part of the answer is kept. A kind is pure: it uses no clock, network
or database. Coalescing, permits, requests, comparison and storage are the job of the other modules.
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
    """The upstream has the subject; `body` is the part of the answer that is kept."""

    body: bytes
    """JSON. The same content must give the same bytes: a snapshot counts as changed when they differ."""
    identity: str
    """The subject of the answer, read from the answer itself and never from the request.

    The key of the subject, or the `upstream_id` that the request was made with. Anything else is a dead letter: the
    upstream answered for another subject.
    """
    upstream_id: str | None = None
    """The upstream's own id of the subject, if it differs from the key. The next request receives it.

    At most 200 printable characters.
    """


class MissingSubject(msgspec.Struct, frozen=True):
    """The upstream has no such subject."""

    reason: str


class UnreadableAnswer(TidegateError):
    """The answer does not have the form that the kind expects. The refresh becomes a dead letter without a retry."""


class SnapshotKind(Protocol):
    """One kind of subject of one upstream.

    Example:
        class WeatherKind:
            name, ttl = "weather", timedelta(minutes=5)

            def request(self, key: str, upstream_id: str | None) -> Request:
                return Request(url=f"https://weather.example/{key}", purpose="weather.read")

            def read(self, key: str, answer: Answer) -> FoundSubject | MissingSubject:
                if answer.status == 404:
                    return MissingSubject(reason="no such place")
                return FoundSubject(body=answer.body, identity=msgspec.json.decode(answer.body)["place"])
    """

    @property
    def name(self) -> str:
        """The name in URLs and settings."""
        ...

    @property
    def ttl(self) -> timedelta:
        """How long a snapshot is fresh after the upstream was asked."""
        ...

    def request(self, key: str, upstream_id: str | None) -> Request:
        """Return the request that fetches the subject; raises `InvalidArgument` for an impossible key."""
        ...

    def read(self, key: str, answer: Answer) -> FoundSubject | MissingSubject:
        """Read an answer with status 200 or 404; raises `UnreadableAnswer`. Other statuses are not passed to a kind."""
        ...


class SnapshotSubject(msgspec.Struct, frozen=True, order=True):
    """The kind and key of one snapshot. Raises `InvalidArgument` for a key that is empty, too long or not printable."""

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
        """`kind/key`: unique among all kinds, and the key of its refresh events."""
        return f"{self.kind}/{self.key}"

    @classmethod
    def from_id(cls, text: str) -> "SnapshotSubject":
        """Return the subject of an `id`."""
        kind, _, key = text.partition("/")
        return cls(kind, key)


LARGEST_BODY = 8 * 1024 * 1024
_per_thread = threading.local()
_walker = msgspec.json.Decoder(msgspec.Raw)


def digest(body: bytes) -> str:
    """Return a hash of the content. It detects changes and is not cryptographic, so it only has to be fast."""
    return xxhash.xxh3_64_hexdigest(body)


def on_one_line(body: bytes) -> bytes:
    """Return the same JSON without line breaks, as needed in server-sent events and command output.

    Raises `InvalidArgument` when `body` is not JSON.
    """
    try:
        body.decode()  # the JSON decoder below does not validate strings
        _walker.decode(body)
        return msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body
    except UNDECODABLE as error:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must be JSON: {error}") from None


def pack(body: bytes) -> bytes:
    """Compress a body; raises `InvalidArgument` when it is larger than `LARGEST_BODY`."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    # One compressor per thread: they are expensive to create and must not be used by two threads at once.
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """Return the decompressed body."""
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    # The limit protects the memory from a damaged body that claims a huge size.
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)
