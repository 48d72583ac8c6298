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
def _decoder(shape: Any) -> Callable[[bytes | msgspec.Raw], Any]:
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


def decode_with_items(body: bytes, shape: type[T], *path: str) -> T:
    """Decode an object that has lists of items, although some of the items cannot be decoded.

    `path` has the names of the fields that lead to the items, through lists, and on to lists inside of the items. An
    item that is invalid JSON or nested too deeply is replaced by null, which `read_items` skips. Raises one of
    `UNDECODABLE` where anything else is invalid.

        class Page(msgspec.Struct):
            books: list[msgspec.Raw]

        page = decode_with_items(answer.body, Page, "books")
    """
    decode: Callable[[bytes], T] = _decoder(shape)
    try:
        body.decode()  # the decoder does not check the encoding of a `Raw`
        return decode(body)
    except UNDECODABLE:
        return decode(_with_null_items(body, path))


def _with_null_items(text: bytes, path: Sequence[str]) -> bytes:
    """Replace the items at `path` that cannot be decoded by null."""
    if _is_decodable(text):
        return text
    if path and (members := _split(text, b"{")) is not None:
        return b"{%b}" % b",".join(_member(each, path) for each in members)
    if (parts := _split(text)) is None:
        return text
    # Only objects are searched further, so that the depth of the recursion is that of the path.
    parts = [_with_null_items(part, path) if part.lstrip().startswith(b"{") else part for part in parts]
    return b"[%b]" % b",".join(part if _is_decodable(part) else b"null" for part in parts)


def _member(member: bytes, path: Sequence[str]) -> bytes:
    """A member of an object, with null for its undecodable items if it is the first one of the path."""
    name, colon, value = member.partition(b":")
    is_on_path = name.strip() == b'"%b"' % path[0].encode()
    return name + colon + _with_null_items(value, path[1:]) if is_on_path else member


def _is_decodable(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except UNDECODABLE:
        return False
    return True


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


def _split(listed: bytes, begins: bytes = b"[") -> list[bytes] | None:
    """Split a list (or with `{`, an object) at the commas between its items; None if it is none, or incomplete."""
    if not listed.lstrip().startswith(begins):
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
