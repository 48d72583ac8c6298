"""Signed passes that visitors show: the user's identity in a room, and the place in line.

A pass cannot be forged, changed, or used for another user or room. A pass for the line proves when the visitor was last
seen: it is valid as long as a place is kept without a sign of life, and each request for the position returns a new
one.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from tidegate.core.clock import to_ms
from tidegate.core.errors import InvalidArgument, TidegateError

_LONGEST = 2048
_SHORTEST_KEY = 16


class PassRefused(TidegateError):
    """The pass is not valid: it was not signed here, is for another room, or has expired."""

    problem = "pass_refused"


class VisitorPass(msgspec.Struct, frozen=True, array_like=True):
    """The contents of a pass."""

    kind: Literal["waiting", "inside", "visitor"]
    """`visitor`: the pass holds no place, only the id under which an anonymous visitor joins."""
    room: str
    line: str
    user: str
    until_ms: int
    place: int | None
    """Place of a waiting visitor. If it was drawn, the encoded pass holds the negated arrival number instead."""
    admission: int | None
    """Number of the admission of a visitor inside."""


class PassExpired(PassRefused):
    """The pass was valid for this room, but its time is over. `shown` holds its contents."""

    def __init__(self, shown: VisitorPass) -> None:
        super().__init__("the time of the pass is over")
        self.shown = shown


class PassSigner:
    """Signs and reads passes. The first key signs; passes signed with one of the other keys are accepted too."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _SHORTEST_KEY for key in keys):
            raise InvalidArgument("keys", f"{len(keys)} keys", f"must be at least one, of {_SHORTEST_KEY} bytes each")
        self._keys = tuple(keys)

    def issue(self, given: VisitorPass) -> str:
        """Return the pass as a text for URLs and cookies."""
        said = msgspec.json.encode(given)
        return f"{_text(said)}.{_text(_sign(self._keys[0], said))}"

    def read(self, token: str, *, room: str, now: datetime) -> VisitorPass:
        """Return the contents of a pass. Raises `PassRefused`, or `PassExpired` if only its time is over."""
        said = self._opened(token)
        try:
            shown = msgspec.json.decode(said, type=VisitorPass)
        except msgspec.MsgspecError:
            raise PassRefused("the pass has an unknown format") from None
        if shown.room != room:
            raise PassRefused("the pass is for another room")
        # Last: an expired pass is reported with its contents only if everything else is valid.
        if shown.until_ms <= to_ms(now):
            raise PassExpired(shown)
        return shown

    def _opened(self, token: str) -> bytes:
        body, _, signature = token.partition(".")
        try:
            # Before decoding and hashing, since the text comes from the client.
            if len(token) > _LONGEST:
                raise ValueError
            said, signed = _bytes(body), _bytes(signature)
        except (ValueError, binascii.Error):
            raise PassRefused("the value is not a pass") from None
        # Every key is tried, so that passes stay valid while keys are rotated. The comparison takes constant time.
        if not any(hmac.compare_digest(_sign(key, said), signed) for key in self._keys):
            raise PassRefused("the pass was not signed here")
        return said

    def __repr__(self) -> str:
        return f"PassOffice({len(self._keys)} keys)"


def _sign(key: bytes, said: bytes) -> bytes:
    # The prefix separates passes from other texts that may be signed with the same key.
    return hmac.digest(key, b"tidegate/pass/" + said, hashlib.sha256)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Decode a text that has exactly one spelling, so that two texts are never the same pass."""
    value = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    if _text(value) != text:
        raise ValueError
    return value
