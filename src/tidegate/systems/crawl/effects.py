"""What a page brings beside further jobs: written by `CrawlWriter`, in the transaction that ends the job."""

from collections.abc import Sequence

import msgspec

from tidegate.systems.crawl.site import Found
from tidegate.systems.crawl.stages import PageKind, Stage


class RawStored(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer that is kept: as a part of a product to be applied, as the page of a search, or as a dead letter.

    One that is to be applied is not kept where it says what is known already.
    """

    site: str
    host: str
    product_id: str
    """Of a search: its keyword and page."""
    shop_id: str = ""
    stage: PageKind
    hash: str
    body: bytes
    """As `bodies.pack` made it."""
    error: str | None = None
    """Why it could not be read, where that makes it a dead letter at once."""


class Confirmed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The upstream says that nothing changed since it said what has this hash."""

    host: str
    product_id: str
    stage: Stage
    hash: str


class Sighted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """These products are on a page of a listing."""

    host: str
    products: Sequence[Found]
