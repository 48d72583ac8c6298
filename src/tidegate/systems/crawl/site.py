"""The extension point for sites: URLs of their pages, and the content of the pages."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol, Self

import msgspec

from tidegate.core.errors import InvalidArgument, NotFound, TidegateError
from tidegate.core.plugins import load_part
from tidegate.storage.sql.faults import words_of
from tidegate.systems.crawl.stages import Stage

LONGEST_ID = 90
"""Maximum length of the id of a product or shop."""
_UNFIT = frozenset("|{}")
_VARIABLE = "TIDEGATE_CRAWL__SITES"


class Unreadable(TidegateError):
    """The page is not the requested one: incomplete, of another layout, or of another subject.

    It is requested again, like any failed call, and stored after the last attempt. Any other exception of a site's code
    counts as a defect of that code: the page is stored at once and not requested again.
    """


class Challenged(TidegateError):
    """The site returned a captcha instead of the page."""


class ListedProduct(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A product on a search page."""

    product_id: str
    shop_id: str

    def __post_init__(self) -> None:
        for text in (self.product_id, self.shop_id):
            # The ids become part of resource names, where `|`, `{` and `}` are not allowed.
            if not 0 < len(text) <= LONGEST_ID or not text.isprintable() or not _UNFIT.isdisjoint(text):
                raise Unreadable(f"the listing has an invalid id: {text[:LONGEST_ID]!r}")


def _id_of(value: object) -> str:
    if isinstance(value, str) or type(value) is int:
        return str(value)
    raise Unreadable(f"the listing has an invalid id: {str(value)[:LONGEST_ID]}")


class ResultPage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One page of search results. `ResultPage.of` builds it from the ids of a page."""

    products: list[ListedProduct]
    next_page: int | None = None
    skipped: list[str] = []
    """The reason for each product that was skipped because its ids could not be read."""

    @classmethod
    def of(cls, products: Iterable[tuple[object, object]], next_page: int | None = None) -> Self:
        """A page with these products, each given by its id and its shop's id: texts or whole numbers.

        A product with any other id is skipped.
        """
        found, skipped = list[ListedProduct](), list[str]()
        for product_id, shop_id in products:
            try:
                found.append(ListedProduct(_id_of(product_id), _id_of(shop_id)))
            except Unreadable as error:
                skipped.append(str(error))
        return cls(found, next_page, skipped)


class Site(Protocol):
    """The layout of one site, or of sites that share it. Pure: equal pages give equal results."""

    @property
    def name(self) -> str:
        """The name by which crawls select the site."""
        ...

    def search_path(self, keyword: str, page: int) -> str:
        """The path of a search page, percent-encoded; pages start at 1."""
        ...

    def read_listing(self, body: bytes) -> ResultPage:
        """Parse a search page; `ResultPage.of` skips products with invalid ids.

        Raises `Unreadable` if the page is incomplete or not a listing, and `Challenged`.
        """
        ...

    def path(self, stage: Stage, product_id: str, shop_id: str) -> str:
        """The path of a part of a product, percent-encoded."""
        ...

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Mapping[str, Any]:
        """Extract the content of a product page, without volatile parts. Raises `Unreadable` and `Challenged`."""
        ...


class Sites:
    """The known sites, by name."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites = dict[str, Site]()
        for site in sites:
            if site.name in self._sites:
                raise InvalidArgument("site", site.name, "is there twice")
            self._sites[site.name] = site

    @property
    def names(self) -> Sequence[str]:
        """The names of the known sites, sorted."""
        return sorted(self._sites)

    def get(self, name: str) -> Site:
        """Return one site; raises `NotFound`, which names the known ones."""
        try:
            return self._sites[name]
        except KeyError:
            raise NotFound("site", name, known=self._sites) from None


def explain(error: Exception) -> str:
    """The error of a site's code, with the place where it occurred."""
    said = words_of(error)
    text = f"{type(said).__name__}: {said}"
    if isinstance(error, TidegateError):
        return text
    frames = extract_tb(error.__traceback__)
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text


def load_site(place: str) -> Site:
    """Load a site that the settings name as `module:name`."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="site",
        needs=("name", "search_path", "read_listing", "path", "extract"),
        is_made=lambda found: not callable(found),
    )
