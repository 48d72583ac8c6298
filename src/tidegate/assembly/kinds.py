"""Which kinds of snapshots an installation keeps: the built-in one, and those of one's own that the settings name."""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tidegate.kernel.errors import InvalidSettings, TidegateError
from tidegate.settings import Settings
from tidegate.snapshots.kinds.game_character import GameCharacter
from tidegate.snapshots.subject import SnapshotKind

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
    ours = settings.snapshots
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
    module_name, _, name = place.partition(":")
    try:
        found: Any = getattr(import_module(module_name), name)
        kind = found() if isinstance(found, type) or not hasattr(found, "request") else found
    except ModuleNotFoundError as error:
        raise InvalidSettings(
            f"{_VARIABLE}: {place}: no module is called {error.name}. Install it, or name its folder in PYTHONPATH"
        ) from None
    except TidegateError:
        raise
    except Exception as error:  # it is the user's code: whatever is wrong with it is told beside its name
        raise InvalidSettings(f"{_VARIABLE}: {place}: {type(error).__name__}: {error}") from error
    missing = [each for each in ("name", "ttl", "request", "read") if not hasattr(kind, each)]
    if missing:
        raise InvalidSettings(f"{_VARIABLE}: {place} is no kind of snapshots: it has no {', '.join(missing)}")
    return kind


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
