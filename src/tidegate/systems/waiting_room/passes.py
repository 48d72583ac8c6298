"""What a user is given to show: who he is here, and which place is his.

A pass is signed, so it cannot be made up, changed, or used for another user or room. One for the line proves that its
owner was seen at a moment: it lasts as long as a place is kept without a sign of life, and each look brings a new one.
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
    """It is no pass of ours, or not for this room, or its time is over."""

    problem = "pass_refused"


class VisitorPass(msgspec.Struct, frozen=True, array_like=True):
    """What a pass says."""

    kind: Literal["waiting", "inside", "visitor"]
    """`visitor`: no place yet; it says under which id an anonymous visitor joins."""
    room: str
    line: str
    user: str
    until_ms: int
    place: int | None
    """Of one who waits; where it was drawn, the text of the pass has the arrival number instead, below zero."""
    admission: int | None
    """Of one who is inside."""


class PassExpired(PassRefused):
    """It was ours, for this room; `shown` is what it said while it was good."""

    def __init__(self, shown: VisitorPass) -> None:
        super().__init__("the time of the pass is over")
        self.shown = shown


class PassSigner:
    """Signs passes and reads them. The first key signs; the others are older ones that are still taken."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < _SHORTEST_KEY for key in keys):
            raise InvalidArgument("keys", f"{len(keys)} keys", f"must be at least one, of {_SHORTEST_KEY} bytes each")
        self._keys = tuple(keys)

    def issue(self, given: VisitorPass) -> str:
        """The pass as a text for URLs and cookies."""
        said = msgspec.json.encode(given)
        return f"{_text(said)}.{_text(_sign(self._keys[0], said))}"

    def read(self, token: str, *, room: str, now: datetime) -> VisitorPass:
        """What a pass says; raise `PassRefused` unless it is ours and for this room, `PassExpired` after its time."""
        said = self._opened(token)
        try:
            shown = msgspec.json.decode(said, type=VisitorPass)
        except msgspec.MsgspecError:
            raise PassRefused("the pass is of a kind that is not known") from None
        if shown.room != room:
            raise PassRefused("the pass is for another room")
        if shown.until_ms <= to_ms(now):
            raise PassExpired(shown)
        return shown

    def _opened(self, token: str) -> bytes:
        body, _, signature = token.partition(".")
        try:
            if len(token) > _LONGEST:
                raise ValueError
            said, signed = _bytes(body), _bytes(signature)
        except (ValueError, binascii.Error):
            raise PassRefused("that is no pass") from None
        if not any(hmac.compare_digest(_sign(key, said), signed) for key in self._keys):
            raise PassRefused("the pass was not signed here")
        return said

    def __repr__(self) -> str:
        return f"PassOffice({len(self._keys)} keys)"


def _sign(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"tidegate/pass/" + said, hashlib.sha256)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """The bytes of a text that has exactly one spelling: two texts are never the same pass."""
    value = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    if _text(value) != text:
        raise ValueError
    return value
