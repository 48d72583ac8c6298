"""The sources that this installation knows beside those of its systems.

A source is named in the setting `sources` as `package.module:Class`, or registered by an installed distribution under
the entry point group `tidegate.sources`. A class or function is called without arguments; anything else is the source
itself.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from tidegate.core.errors import InvalidArgument, InvalidSettings
from tidegate.engine.source import Source, Subject
from tidegate.runtime.loading import load_part
from tidegate.storage.documents.export.columns import Column

GROUP = "tidegate.sources"
_VARIABLE = "TIDEGATE_SOURCES"
_NEEDS = ("name", "planning_kinds", "first_jobs", "request", "read")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def load_sources(places: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, Source]:
    """The sources at `places` and those of installed distributions, by name.

    Raises `InvalidSettings` for a place without a source, for a name that cannot be used, and for one that two sources
    have or that is `taken`.
    """
    found: dict[str, Source] = {}
    for place in dict.fromkeys([*places, *(entry.value for entry in entry_points(group=GROUP))]):
        source: Source = load_part(place, variable=_VARIABLE, what="source", needs=_NEEDS, is_made=_is_made)
        if not _NAME.fullmatch(source.name):
            raise InvalidSettings(
                f"{_VARIABLE}: {place}: a source cannot be called {source.name!r}: small letters, digits, - and _ can"
            )
        if source.name in found or source.name in taken:
            raise InvalidSettings(f"{_VARIABLE}: {place}: another source is called {source.name!r}")
        found[source.name] = source
    return found


def require_known(sources: Mapping[str, Source], name: str, *, others: Collection[str] = ()) -> Source:
    """The source of this name; raises `InvalidArgument` with the names of all known sources, `others` included."""
    if name not in sources:
        known = ", ".join(sorted({*sources, *others}))
        raise InvalidArgument("source", name, f"must be one of {known}. Sources of your own stand in {_VARIABLE}")
    return sources[name]


def subject_of(source: Source, text: str) -> Subject:
    """The subject that a person means by `text`: what the source's own `subject` says, else the text itself."""
    read: Any = getattr(source, "subject", None)
    return Subject(user_id=text, login=text) if read is None else read(text)


def columns_of(source: Source) -> Mapping[str, Sequence[Column]]:
    """The columns that a source declares for its kinds of documents, in its attribute `columns`."""
    columns: Mapping[str, Sequence[Column]] = getattr(source, "columns", {})
    return columns


def _is_made(found: object) -> bool:
    return not isinstance(found, type) and hasattr(found, "first_jobs")
