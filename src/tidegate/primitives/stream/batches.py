"""Splits commands into batches of bounded size, because a long script blocks the server."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from tidegate.core.errors import InvalidArgument

T = TypeVar("T")

BATCH = 100
"""Messages per script."""

_ID = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)


def in_batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split items into batches of at most `BATCH`, in order."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def id_batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into batches of at most `BATCH`, without duplicates. Raises `InvalidArgument` for invalid ids."""
    unique = list(dict.fromkeys(ids))
    for one in unique:
        require_id("id", one)
    for batch in in_batches(unique):
        yield list(batch)


def require_id(name: str, value: str) -> str:
    """Require an id of a stream entry: milliseconds, a hyphen, a number."""
    if not _ID.fullmatch(value):
        raise InvalidArgument(name, value, "is not the id of a message")
    return value
