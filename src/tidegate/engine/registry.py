"""Loads the sources of the setting `sources` and of installed distributions.

A source is named in the setting `sources` as `package.module:Class`, or registered by an installed distribution under
the entry point group `tidegate.sources`. A class or function is called without arguments; anything else is the source
itself.
"""

import re
from collections.abc import Collection, Sequence
from importlib.metadata import entry_points

from tidegate.core.errors import InvalidSettings
from tidegate.engine.source import Source
from tidegate.runtime.loading import load_part

GROUP = "tidegate.sources"
_VARIABLE = "TIDEGATE_SOURCES"
_NEEDS = ("name", "planning_kinds", "first_jobs", "request", "read")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def load_sources(places: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, Source]:
    """The sources at `places` and those of installed distributions, by name.

    Raises `InvalidSettings` for a place without a source, for an invalid name, and for a name that two sources have or
    that is `taken`.
    """
    found: dict[str, Source] = {}
    for place in dict.fromkeys([*places, *(entry.value for entry in entry_points(group=GROUP))]):
        source: Source = load_part(place, variable=_VARIABLE, what="source", needs=_NEEDS, is_made=_is_made)
        if not _NAME.fullmatch(source.name):
            raise InvalidSettings(
                f"{_VARIABLE}: {place}: invalid source name {source.name!r}: use lower-case letters, digits, - and _"
            )
        if source.name in found or source.name in taken:
            raise InvalidSettings(f"{_VARIABLE}: {place}: another source has the name {source.name!r}")
        found[source.name] = source
    return found


def _is_made(found: object) -> bool:
    return not isinstance(found, type) and hasattr(found, "first_jobs")
