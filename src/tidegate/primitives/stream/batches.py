"""Nothing goes to the server in pieces of unlimited size: a long script holds up everybody else."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from tidegate.core.errors import InvalidArgument

T = TypeVar("T")

BATCH = 100
"""Messages per script."""

_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)


def in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The same items in the same order, at most `BATCH` at a time."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def id_batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """The same ids, each once, at most `BATCH` at a time; refuses what no stream has given out."""
    unique = list(dict.fromkeys(ids))
    for one in unique:
        require_id("id", one)
    for batch in in_batches(unique):
        yield list(batch)


def require_id(name: str, value: str) -> str:
    """An id as streams give them: milliseconds, a hyphen, a number."""
    if not _ID.fullmatch(value):
        raise InvalidArgument(name, value, "is not the id of a message")
    return value
