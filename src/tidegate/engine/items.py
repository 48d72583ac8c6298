"""Reads the items of a list one by one, so that one bad item does not cost the rest of its page.

Real upstreams send `null` in a list, items without an id, and fields of another type. Such an item is skipped, with a
reason. The engine counts it (`collect_items_skipped`, the run's `skipped_items`), logs it, and marks nothing as gone
from a list in which it occurred.
"""

from collections.abc import Callable, Iterable
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

    An item of another shape is skipped, and so is one of which `to_document` cannot make a document (`InvalidArgument`:
    an empty id, for instance). Raises `msgspec.DecodeError` where `listed` is not a list: a page that was cut off, or
    of something else, is no empty list.

        books = read_items(page.books, Book, lambda book, raw: task.document("book", book.isbn, raw))
        return Reading(documents=books.documents, skipped=books.skipped)
    """
    raws = _LIST.decode(listed) if isinstance(listed, bytes) else listed
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
