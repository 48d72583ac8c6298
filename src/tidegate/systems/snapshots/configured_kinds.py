"""Which kinds of snapshots an installation keeps: the built-in one, and those of one's own that the settings name."""

import re
from collections.abc import Sequence

from tidegate.core.errors import InvalidSettings
from tidegate.runtime.loading import load_part
from tidegate.settings import Settings
from tidegate.systems.snapshots.kinds.game_character import GameCharacter
from tidegate.systems.snapshots.settings import SnapshotSettings
from tidegate.systems.snapshots.subject import SnapshotKind

RESERVED = frozenset({"dead", "prefetch"})
"""Addresses of ours, which no kind can have."""
NO_KINDS = (
    "this installation keeps no snapshots, since no kind of them is set up. For the characters of a game set "
    "TIDEGATE_SNAPSHOTS__GAME__URL and TIDEGATE_SNAPSHOTS__GAME__API_KEY (`tidegate simulate game` is one to try, and "
    "tells both); for a kind of your own set TIDEGATE_SNAPSHOTS__KINDS"
)
_VARIABLE = "TIDEGATE_SNAPSHOTS__KINDS"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def configured_kinds(settings: Settings) -> list[SnapshotKind]:
    """The kinds that the settings speak of; raises `InvalidSettings` for one that cannot be had."""
    ours = settings.section(SnapshotSettings)
    kinds: list[SnapshotKind] = []
    if ours.game.url is not None:
        key = None if ours.game.api_key is None else ours.game.api_key.get_secret_value()
        kinds.append(GameCharacter(ours.game.url, api_key=key, ttl=ours.game.ttl))
    return kinds + [load_kind(place) for place in ours.kinds]


def require_kinds(settings: Settings) -> list[SnapshotKind]:
    """The same; raises `InvalidSettings` with what to do where there are none."""
    kinds = configured_kinds(settings)
    if not kinds:
        raise InvalidSettings(NO_KINDS)
    return kinds


def load_kind(place: str) -> SnapshotKind:
    """The kind at `module:name`; where that is a class or a function, what it makes without arguments."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="kind of snapshots",
        needs=("name", "ttl", "request", "read"),
        is_made=lambda found: hasattr(found, "request") and not isinstance(found, type),
    )


def by_name(kinds: Sequence[SnapshotKind]) -> dict[str, SnapshotKind]:
    """The kinds by what they are called; raises `InvalidSettings` where a name cannot be used."""
    named = {kind.name: kind for kind in kinds}
    for name in named:
        if not _NAME.fullmatch(name):
            raise InvalidSettings(f"a kind of snapshots cannot be called {name!r}: its name stands in addresses")
        if name in RESERVED:
            raise InvalidSettings(f"a kind of snapshots cannot be called {name!r}: that is an address of ours")
    if len(named) != len(kinds):
        raise InvalidSettings(f"two kinds of snapshots have one name: {', '.join(kind.name for kind in kinds)}")
    return named
