"""Reads the items of a list one by one, so that one bad item does not cost the rest of its page.

Real upstreams send `null` in a list, items without an id, and fields of another type. Such an item is skipped, with a
reason. The engine counts it (`collect_items_skipped`, the run's `skipped_items`), logs it, and marks nothing as gone
from a list in which it occurred.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.storage.documents import Document

T = TypeVar("T")

_LIST = msgspec.json.Decoder(list[msgspec.Raw])


@cache
def _decoder(shape: Any) -> Callable[[msgspec.Raw], Any]:
    """Made once for each shape: making a decoder takes longer than reading a page."""
    return msgspec.json.Decoder(shape).decode


class Items(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The items of one page, as far as they could be read."""

    read: list[T]
    documents: list[Document]
    """One for each item that was read, where `to_document` was given."""
    skipped: list[str]
    """For each item that could not be read, why."""

    @property
    def is_empty(self) -> bool:
        """Whether the page had no item at all, readable or not."""
        return not self.read and not self.skipped


def read_items(
    listed: bytes | Iterable[msgspec.Raw],
    shape: type[T],
    to_document: Callable[[T, msgspec.Raw], Document] | None = None,
) -> Items[T]:
    """Read `listed`, the JSON of a list or its items, each as a `shape`.

    An item of another shape is skipped, and so is one that is invalid JSON or nested too deeply, or of which
    `to_document` cannot make a document (`InvalidArgument`: an empty id, for instance). Raises one of `UNDECODABLE`
    where `listed` is not a list: a page that was cut off, or of something else, is no empty list.

        books = read_items(page.books, Book, lambda book, raw: task.document("book", book.isbn, raw))
        return Reading(documents=books.documents, skipped=books.skipped)
    """
    raws = _items_of(listed) if isinstance(listed, bytes) else listed
    decode: Callable[[msgspec.Raw], T] = _decoder(shape)
    read, documents, skipped = list[T](), list[Document](), list[str]()
    for raw in raws:
        try:
            item = decode(raw)
            if to_document is not None:
                documents.append(to_document(item, raw))
        except (*UNDECODABLE, InvalidArgument) as error:
            skipped.append(f"{type(error).__name__}: {error}")
        else:
            read.append(item)
    return Items(read=read, documents=documents, skipped=skipped)


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)


def _items_of(listed: bytes) -> Sequence[msgspec.Raw]:
    """The items of a list. The decoder checks all of them, so where it fails, the list is split without it."""
    try:
        return _LIST.decode(listed)
    except UNDECODABLE:
        parts = _split(listed)
        if parts is None:
            raise
        return [msgspec.Raw(part) for part in parts]


def _split(listed: bytes) -> list[bytes] | None:
    """Split a list at the commas between its items; None if it is no list, or incomplete."""
    if not listed.lstrip().startswith(b"["):
        return None
    depth, begin, parts = 0, 0, list[bytes]()
    for token in _TOKEN.finditer(listed):
        sign = token[0]
        if sign == b'"':  # a text that does not end
            return None
        if sign in b"[{":
            depth += 1
            begin = begin or token.end()
        elif sign in b"]}":
            depth -= 1
        if depth == 0 or (depth == 1 and sign == b","):
            parts.append(listed[begin : token.start()])
            begin = token.end()
        if depth == 0:
            return parts if not listed[begin:].strip() else None
    return None
