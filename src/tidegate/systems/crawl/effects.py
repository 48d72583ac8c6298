"""Effects of a page beside follow-up jobs: written by `CrawlWriter` in the transaction that ends the job."""

from collections.abc import Sequence

import msgspec

from tidegate.systems.crawl.site import ListedProduct
from tidegate.systems.crawl.stages import PageKind, Stage


class NewRaw(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer to store: a part of a product, a search page, or a dead letter.

    A part of a product with known content is not stored.
    """

    site: str
    host: str
    product_id: str
    """The id of the product; for a search page, its keyword and page."""
    shop_id: str = ""
    stage: PageKind
    hash: str
    body: bytes
    """The body, encoded by `bodies.pack`."""
    error: str | None = None
    """Why it could not be read, which makes it a dead letter at once."""


class UnchangedContent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The upstream confirmed that the content with this hash is unchanged."""

    host: str
    product_id: str
    stage: Stage
    hash: str


class ListedProducts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Products that a search page lists."""

    host: str
    products: Sequence[ListedProduct]
