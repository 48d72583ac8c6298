"""Characters of a game: 300 KB each, of which a twentieth is worth keeping.

The answer is never turned into objects. The decoder walks over it once and hands out the kept fields as the bytes that
they are, and these are joined to the snapshot; what is dropped is only walked over.
"""

from datetime import timedelta

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.snapshots.subject import Found, Missing, Unreadable

KEPT_FIELDS = (
    *("id", "name", "realm", "version", "profile", "stats"),
    *("weapons", "armour", "jewellery", "skills", "titles", "cards"),
)
_LONGEST_ID = 10


class _Kept(msgspec.Struct):
    id: msgspec.Raw
    name: msgspec.Raw
    realm: msgspec.Raw
    version: msgspec.Raw
    profile: msgspec.Raw
    stats: msgspec.Raw
    weapons: msgspec.Raw
    armour: msgspec.Raw
    jewellery: msgspec.Raw
    skills: msgspec.Raw
    titles: msgspec.Raw
    cards: msgspec.Raw


_decoder = msgspec.json.Decoder(_Kept)


class GameCharacter:
    """A `SnapshotKind`. A character's key is its number."""

    name = "character"

    def __init__(self, url: str, *, api_key: str | None = None, ttl: timedelta = timedelta(minutes=15)) -> None:
        self._url, self.ttl = url.rstrip("/"), ttl
        self._headers = {} if api_key is None else {"X-Api-Key": api_key}

    def request(self, key: str, upstream_id: str | None) -> Request:
        """See `SnapshotKind`."""
        del upstream_id  # it is the key
        if not (key.isascii() and key.isdigit() and len(key) <= _LONGEST_ID and key[0] != "0"):
            raise InvalidArgument("key", key[:32], "a character is known by its number")
        return Request(url=f"{self._url}/v1/characters/{key}", purpose="game.character", headers=self._headers)

    def read(self, key: str, answer: Answer) -> Found | Missing:
        """See `SnapshotKind`."""
        if answer.status == 404:
            return Missing("the game has no such character")
        try:
            kept = _decoder.decode(answer.body)
        except UNDECODABLE as error:
            raise Unreadable(f"character {key}: {error}") from None
        fields = [b'"%b":%b' % (name.encode(), getattr(kept, name)) for name in KEPT_FIELDS]
        identity = bytes(kept.id).decode()  # a JSON number; anything else is no key
        return Found(b"{" + b",".join(fields) + b"}", identity=identity, upstream_id=key)
