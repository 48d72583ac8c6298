"""What a page brings beside further jobs: written by `CrawlWriter`, in the transaction that ends the job."""

from collections.abc import Sequence

import msgspec

from tidegate.crawl.site import Found
from tidegate.crawl.stages import Stage


class RawStored(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An answer about a product, to be kept and made a part of it, unless it says what is known already."""

    site: str
    host: str
    product_id: str
    shop_id: str
    stage: Stage
    hash: str
    body: bytes
    """As `bodies.pack` made it."""


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
