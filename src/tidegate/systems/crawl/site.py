"""What has to be known of a site to crawl it: where its pages are, and what is on them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol, Self

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound, TidegateError
from tidegate.runtime.loading import load_part
from tidegate.storage.sql.faults import words_of
from tidegate.systems.crawl.stages import Stage

LONGEST_ID = 90
"""Characters of the id of a product or of a shop."""
_UNFIT = frozenset("|{}")
_VARIABLE = "TIDEGATE_CRAWL__SITES"


class Unreadable(TidegateError):
    """The page is not what was asked for: broken off, of another layout, or of something else.

    It is asked for again, as often as any call that fails, and kept at the last try. Any other exception of a site's
    code is taken for a defect of that code: the page is kept at once, and not asked for again.
    """


class Challenged(TidegateError):
    """Instead of the page came one that wants to know whether we are human."""


class Found(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A product on a page of a listing."""

    product_id: str
    shop_id: str

    def __post_init__(self) -> None:
        for text in (self.product_id, self.shop_id):
            if not 0 < len(text) <= LONGEST_ID or not text.isprintable() or not _UNFIT.isdisjoint(text):
                raise Unreadable(f"the listing has an id that is none: {text[:LONGEST_ID]!r}")


def _id_of(value: object) -> str:
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise Unreadable(f"the listing has an id that is none: {str(value)[:LONGEST_ID]}")


class Listing(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One page of what a search finds. `Listing.of` makes it of whatever ids a page has."""

    products: list[Found]
    next_page: int | None = None
    skipped: list[str] = []
    """For each product that was left out because its ids could not be read, why."""

    @classmethod
    def of(cls, products: Iterable[tuple[object, object]], next_page: int | None = None) -> Self:
        """A page with these products, each by its id and that of its shop: texts or whole numbers.

        A product with anything else for an id is skipped.
        """
        found, skipped = list[Found](), list[str]()
        for product_id, shop_id in products:
            try:
                found.append(Found(_id_of(product_id), _id_of(shop_id)))
            except Unreadable as error:
                skipped.append(str(error))
        return cls(found, next_page, skipped)


class Site(Protocol):
    """The layout of one site, or of all that are made alike. Pure: the same page always says the same."""

    @property
    def name(self) -> str:
        """What crawls call it."""
        ...

    def search_path(self, keyword: str, page: int) -> str:
        """Where a page of a search is, from 1; as it stands in a request, so percent-encoded."""
        ...

    def read_listing(self, body: bytes) -> Listing:
        """What is on a page of a search; `Listing.of` leaves out products whose ids cannot be read.

        Raises `Unreadable` where the page is not whole, or not a listing, and `Challenged`.
        """
        ...

    def path(self, stage: Stage, product_id: str, shop_id: str) -> str:
        """Where a part of a product is; percent-encoded."""
        ...

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Mapping[str, Any]:
        """What a page says of a product, without whatever differs each time. Raises `Unreadable`, `Challenged`."""
        ...


class Sites:
    """The sites that are known, by name."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites = dict[str, Site]()
        for site in sites:
            if site.name in self._sites:
                raise InvalidArgument("site", site.name, "is there twice")
            self._sites[site.name] = site

    @property
    def names(self) -> Sequence[str]:
        """What there is."""
        return sorted(self._sites)

    def get(self, name: str) -> Site:
        """One site; `NotFound` says which there are."""
        try:
            return self._sites[name]
        except KeyError:
            raise NotFound("site", name, known=self._sites) from None


def explain(error: Exception) -> str:
    """What went wrong in a site's code, and where, for whoever mends it."""
    said = words_of(error)
    text = f"{type(said).__name__}: {said}"
    if isinstance(error, TidegateError):
        return text
    frames = extract_tb(error.__traceback__)
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text


def load_site(place: str) -> Site:
    """A site of the user's own, named as `module:name` in the settings."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="site",
        needs=("name", "search_path", "read_listing", "path", "extract"),
        is_made=lambda found: not callable(found),
    )
