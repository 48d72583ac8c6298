"""The kinds of snapshots of this installation: the built-in game character, and those that the settings name.

A game character has 300 KB, of which a twentieth is kept. The answer is never converted to Python objects: the decoder
walks over it once and returns the kept fields as raw bytes, which are joined to the snapshot.
"""

import re
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument, InvalidSettings
from tidegate.core.plugins import load_part
from tidegate.engine.upstream import Answer, Request
from tidegate.settings import Settings
from tidegate.systems.snapshots.model import FoundSubject, MissingSubject, SnapshotKind, UnreadableAnswer
from tidegate.systems.snapshots.settings import SnapshotSettings

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
    """The `SnapshotKind` `character`; the key is the number of the character."""

    name = "character"

    def __init__(self, url: str, *, api_key: str | None = None, ttl: timedelta = timedelta(minutes=15)) -> None:
        self._url, self.ttl = url.rstrip("/"), ttl
        self._headers = {} if api_key is None else {"X-Api-Key": api_key}

    def request(self, key: str, upstream_id: str | None) -> Request:
        """See `SnapshotKind`."""
        del upstream_id  # it is the key
        if not (key.isascii() and key.isdigit() and len(key) <= _LONGEST_ID and key[0] != "0"):
            raise InvalidArgument("key", key[:32], "must be the number of a character")
        return Request(url=f"{self._url}/v1/characters/{key}", purpose="game.character", headers=self._headers)

    def read(self, key: str, answer: Answer) -> FoundSubject | MissingSubject:
        """See `SnapshotKind`."""
        if answer.status == 404:
            return MissingSubject("the game has no such character")
        try:
            kept = _decoder.decode(answer.body)
        except UNDECODABLE as error:
            raise UnreadableAnswer(f"character {key}: {error}") from None
        fields = [b'"%b":%b' % (name.encode(), getattr(kept, name)) for name in KEPT_FIELDS]
        # The identity comes from the answer, never from the request: otherwise an answer for
        # another subject would match.
        identity = bytes(kept.id).decode()  # a JSON number; anything else does not match a key
        return FoundSubject(b"{" + b",".join(fields) + b"}", identity=identity, upstream_id=key)


RESERVED = frozenset({"dead", "prefetch"})
"""Path segments under `/v1/snapshots` that cannot be names of kinds."""
NO_KINDS = (
    "no kind of snapshots is configured. For the characters of a game set "
    "TIDEGATE_SNAPSHOTS__GAME__URL and TIDEGATE_SNAPSHOTS__GAME__API_KEY (`tidegate simulate game` starts a "
    "simulator and prints its URL and key); for your own kind set TIDEGATE_SNAPSHOTS__KINDS"
)
_VARIABLE = "TIDEGATE_SNAPSHOTS__KINDS"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def configured_kinds(settings: Settings) -> list[SnapshotKind]:
    """Return the kinds of the settings; raises `InvalidSettings` for one that cannot be loaded."""
    ours = settings.section(SnapshotSettings)
    kinds: list[SnapshotKind] = []
    if ours.game.url is not None:
        key = None if ours.game.api_key is None else ours.game.api_key.get_secret_value()
        kinds.append(GameCharacter(ours.game.url, api_key=key, ttl=ours.game.ttl))
    return kinds + [load_kind(place) for place in ours.kinds]


def require_kinds(settings: Settings) -> list[SnapshotKind]:
    """Return the kinds of the settings; raises `InvalidSettings` also if there are none."""
    kinds = configured_kinds(settings)
    if not kinds:
        raise InvalidSettings(NO_KINDS)
    return kinds


def load_kind(place: str) -> SnapshotKind:
    """Load the kind at `module:name`; a class or function is called without arguments."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="kind of snapshots",
        needs=("name", "ttl", "request", "read"),
        is_made=lambda found: hasattr(found, "request") and not isinstance(found, type),
    )


def by_name(kinds: Sequence[SnapshotKind]) -> dict[str, SnapshotKind]:
    """Return the kinds by name; raises `InvalidSettings` for a name that is invalid, reserved or not unique."""
    named = {kind.name: kind for kind in kinds}
    for name in named:
        if not _NAME.fullmatch(name):
            raise InvalidSettings(f"invalid name {name!r} of a kind of snapshots: must be 1 to 40 of A-Z a-z 0-9 _ . -")
        if name in RESERVED:
            raise InvalidSettings(f"invalid name {name!r} of a kind of snapshots: the name is reserved")
    if len(named) != len(kinds):
        raise InvalidSettings(f"two kinds of snapshots have the same name: {', '.join(kind.name for kind in kinds)}")
    return named
