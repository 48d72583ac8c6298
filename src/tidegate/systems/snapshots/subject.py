"""What is kept fresh: a kind of snapshot says how to ask for one subject, and what of the answer is kept.

A kind is pure: no clock, no network, no database. The engine coalesces, waits, calls, compares and writes.
"""

from datetime import timedelta
from typing import Protocol

import msgspec

from tidegate.core.arguments import require_name
from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.engine.upstream import Answer, Request

LONGEST_KEY = 120
LONGEST_UPSTREAM_ID = 200


class Found(msgspec.Struct, frozen=True):
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


class Missing(msgspec.Struct, frozen=True):
    """The upstream says that there is no such subject."""

    reason: str


class Unreadable(TidegateError):
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

    def read(self, key: str, answer: Answer) -> Found | Missing:
        """What an answer of status 200 or 404 means; raises `Unreadable`. Others are the engine's to judge."""
        ...


class Subject(msgspec.Struct, frozen=True, order=True):
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
    def from_id(cls, text: str) -> "Subject":
        """The subject of this name."""
        kind, _, key = text.partition("/")
        return cls(kind, key)
