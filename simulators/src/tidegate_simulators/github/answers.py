"""An answer before it is sent: made once, kept as long as the world does not change, sent often."""

import zlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import msgspec

DOCS = "https://docs.github.com/rest"
JSON_TYPE = "application/json; charset=utf-8"
_SMALLEST_COMPRESSED = 1_000


@dataclass
class Answer:
    """Status, body, and the headers that do not depend on the caller."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    last_modified: int | None = None
    content_type: str = JSON_TYPE
    cost: int = 1
    """What it takes from the allowance; 0 for what is free."""
    computing_s: float = 0
    """Computing time beyond that of an ordinary call; the answer takes at least as long."""

    @cached_property
    def digest(self) -> bytes:
        """Stands for the body: equal digests, equal bodies."""
        return blake2b(self.body, digest_size=16).digest()

    def etag(self, token: bytes) -> str:
        """The mark of this body for one token: another token has another mark for the same body."""
        return f'W/"{blake2b(self.digest, key=token, digest_size=32).hexdigest()}"'

    @cached_property
    def packed(self) -> bytes | None:
        """The body in gzip's format, if that is worth while."""
        if len(self.body) < _SMALLEST_COMPRESSED:
            return None
        packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return packer.compress(self.body) + packer.flush()

    @property
    def weight(self) -> int:
        """Roughly the memory it takes."""
        return 2 * len(self.body) + 500


class Refused(Exception):
    """Asked for something that is answered with an error; raised where it is noticed, sent by the server."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def ok(content: Any, *, headers: Mapping[str, str] | None = None, last_modified: int | None = None) -> Answer:
    """Answer 200 with a JSON body."""
    return Answer(200, msgspec.json.encode(content), headers or {}, last_modified)


def error(
    status: int, message: str, *, docs: str = DOCS, headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """An error in GitHub's form."""
    content = {"message": message, **more, "documentation_url": docs, "status": str(status)}
    return Answer(status, msgspec.json.encode(content), headers or {})


def refuse(status: int, message: str, **more: Any) -> Refused:
    """An error in GitHub's form, to be raised."""
    return Refused(error(status, message, **more))


def not_found() -> Refused:
    """404: it is not there, or not for you."""
    return refuse(404, "Not Found")


class AnswerCache:
    """The answers last used, up to a weight."""

    def __init__(self, most_bytes: int = 64_000_000) -> None:
        self._most, self._weight = most_bytes, 0
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()

    def get(self, key: Hashable) -> Answer | None:
        """The answer kept under this key."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, answer: Answer) -> None:
        """Store it, and drop the least recently used one."""
        self._kept[key] = answer
        self._weight += answer.weight
        while self._weight > self._most and len(self._kept) > 1:
            self._weight -= self._kept.popitem(last=False)[1].weight
