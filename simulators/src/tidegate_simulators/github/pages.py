"""Lists, page by page: page numbers where GitHub has them, cursors where it has those."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tidegate_simulators.github.answers import Answer, ok, refuse

DEFAULT_PER_PAGE = 30
MOST_PER_PAGE = 100
TOO_LARGE = (
    "Pagination with the page parameter is not supported for large datasets, "
    "please use cursor based pagination (after/before)"
)
_MARK = b"cursor:v2:"

Query = Mapping[str, str]
Key = tuple[int, int]


def positive(query: Query, name: str, default: int) -> int:
    """A number from the query; invalid values are ignored."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


@dataclass(frozen=True)
class Window:
    """Which part of a list is asked for. More than 100 per page is 100, silently."""

    page: int
    size: int

    @staticmethod
    def of(query: Query) -> "Window":
        """Read the page from a query."""
        size = min(MOST_PER_PAGE, positive(query, "per_page", DEFAULT_PER_PAGE))
        return Window(positive(query, "page", 1), size)

    @property
    def start(self) -> int:
        """The first entry, by its offset."""
        return (self.page - 1) * self.size


@dataclass(frozen=True)
class Place:
    """Where a list lives: what its links point to, and the query that they repeat."""

    url: str
    query: Query

    def link(self, relation: str, **changed: str | int) -> str:
        """One link to another page of the same list."""
        kept = {name: value for name, value in self.query.items() if name not in ("page", "after", "before")}
        return f'<{self.url}?{urlencode({**kept, **changed})}>; rel="{relation}"'


def numbered_page(
    entries: Sequence[Any],
    render: Callable[[Any], Any],
    place: Place,
    *,
    most: int | None = None,
    links_last: bool = True,
) -> Answer:
    """A page by its number. Beyond the end it is empty; `most`: no more than so many can be reached."""
    window = Window.of(place.query)
    reachable = len(entries) if most is None else min(most, len(entries))
    last = max(1, -(-reachable // window.size))
    links: list[str] = []
    if window.page > 1:
        links.append(place.link("prev", page=min(window.page - 1, last)))
    if window.page < last:
        links.append(place.link("next", page=window.page + 1))
        if links_last:
            links.append(place.link("last", page=last))
    if window.page > 1:
        links.append(place.link("first", page=1))
    shown = entries[window.start : min(window.start + window.size, reachable)]
    return ok([render(entry) for entry in shown], headers={"link": ", ".join(links)} if links else {})


@dataclass(frozen=True)
class Ordered:
    """Entries in ascending order of a key, to be read in one direction."""

    ascending: Sequence[int]
    key: Callable[[int], Key]
    descending: bool

    def __len__(self) -> int:
        return len(self.ascending)

    def part(self, start: int, count: int) -> list[int]:
        """`count` entries from an offset."""
        if not self.descending:
            return list(self.ascending[start : start + count])
        end = len(self.ascending) - start
        return list(self.ascending[max(0, end - count) : max(0, end)])[::-1]

    def offset_after(self, key: Key) -> int:
        """Where the entries that follow `key` begin, whether or not one has that very key."""
        if self.descending:
            return len(self.ascending) - bisect_left(self.ascending, key, key=self.key)
        return bisect_right(self.ascending, key, key=self.key)

    def offset_of(self, key: Key) -> int:
        """Where the entries that do not precede `key` begin."""
        if self.descending:
            return len(self.ascending) - bisect_right(self.ascending, key, key=self.key)
        return bisect_left(self.ascending, key, key=self.key)


def cursor_page(
    entries: Ordered, render: Callable[[int], Any], place: Place, *, largest_offset: int, cursors_end: bool = False
) -> Answer:
    """A page after a cursor. There is no last link, and page numbers alone reach only so far."""
    window = Window.of(place.query)
    after, before = place.query.get("after"), place.query.get("before")
    if window.page * window.size >= largest_offset and (cursors_end or not (after or before)):
        raise refuse(422, TOO_LARGE)
    start = _start(entries, window, after, before)
    shown = entries.part(start, window.size)
    links: list[str] = []
    if shown and start + len(shown) < len(entries):
        links.append(place.link("next", page=window.page + 1, after=encode_cursor(entries.key(shown[-1]))))
    if shown and start > 0:
        links.append(place.link("prev", page=max(1, window.page - 1), before=encode_cursor(entries.key(shown[0]))))
    return ok([render(entry) for entry in shown], headers={"link": ", ".join(links)} if links else {})


def _start(entries: Ordered, window: Window, after: str | None, before: str | None) -> int:
    if after:
        return entries.offset_after(decode_cursor(after))
    if before:
        return max(0, entries.offset_of(decode_cursor(before)) - window.size)
    return window.start


def encode_cursor(key: Key) -> str:
    """A position in a list, as opaque text."""
    return urlsafe_b64encode(_MARK + f"{key[0]}.{key[1]}".encode()).decode()


def decode_cursor(text: str) -> Key:
    """The place that a cursor names; 422 if it names none."""
    try:
        first, second = urlsafe_b64decode(text).removeprefix(_MARK).split(b".")
        return int(first), int(second)
    except ValueError:
        raise refuse(422, "Validation Failed", errors=[{"code": "invalid", "field": "after"}]) from None
