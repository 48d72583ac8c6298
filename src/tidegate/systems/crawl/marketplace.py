"""The built-in site: a marketplace with HTML listings, and JSON for shops, details and options of products."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.items import decode_with_items, read_items
from tidegate.systems.crawl.site import Challenged, ResultPage, Unreadable
from tidegate.systems.crawl.stages import Stage

_END = b"</html>"
_AFTER_END = 400
"""Number of last bytes that contain the end of a complete page; some servers append a comment."""
_CHALLENGE = b'id="challenge-form"'


class _Shop(msgspec.Struct):
    id: int
    name: str
    grade: str
    rating: float
    followers: int


class _MiniShop(msgspec.Struct):
    product_id: int
    name: str
    price: int
    list_price: int
    currency: str
    shop: _Shop

    @property
    def described_product(self) -> int:
        return self.product_id


class _Shipping(msgspec.Struct):
    fee: int
    days: int


class _Detail(msgspec.Struct):
    id: int
    shop_id: int
    name: str
    brand: str
    category: list[str]
    price: int
    list_price: int
    currency: str
    sold_out: bool
    description: str
    images: list[str]
    attributes: dict[str, Any]
    rating: float
    reviews: int
    shipping: _Shipping

    @property
    def described_product(self) -> int:
        return self.id


class _Option(msgspec.Struct):
    id: int
    name: str
    extra_price: int
    stock: int


class _Options(msgspec.Struct):
    product_id: int
    options: list[msgspec.Raw]

    @property
    def described_product(self) -> int:
        return self.product_id


_SHAPES: Mapping[Stage, type[_MiniShop | _Detail | _Options]] = {
    Stage.MINI_SHOP: _MiniShop,
    Stage.DETAIL: _Detail,
    Stage.OPTION: _Options,
}


class MarketplaceSite:
    """The layout of the marketplace in `tidegate_simulators.marketplace`."""

    name = "marketplace"

    def search_path(self, keyword: str, page: int) -> str:
        """See `Site.search_path`."""
        return f"/search?{urlencode({'q': keyword, 'page': page})}"

    def read_listing(self, body: bytes) -> ResultPage:
        """See `Site.read_listing`. A page without its end is incomplete: links may be missing."""
        if _END not in body[-_AFTER_END:]:
            raise Unreadable("the listing is incomplete")
        page = LexborHTMLParser(body)
        # A page without results still has the list and the navigation. Without them it is
        # something else, such as a captcha.
        if page.css_first("ul.search-list") is None or page.css_first("nav.paging .current") is None:
            if page.css_first("#challenge-form") is not None:
                raise Challenged("the page is a captcha")
            raise Unreadable("the page is not a listing")
        cards = page.css("li.product-card[data-product-id]")
        products = ((_attribute(card, "data-product-id"), _attribute(card, "data-shop-id")) for card in cards)
        return ResultPage.of(products, _next_page(page))

    def path(self, stage: Stage, product_id: str, shop_id: str) -> str:
        """See `Site.path`."""
        product, shop = quote(product_id, safe=""), quote(shop_id, safe="")
        match stage:
            case Stage.MINI_SHOP:
                return f"/api/shops/{shop}/mini?product={product}"
            case Stage.DETAIL:
                return f"/api/products/{product}"
            case Stage.OPTION:
                return f"/api/products/{product}/options"

    def extract(self, stage: Stage, product_id: str, body: bytes) -> Mapping[str, Any]:
        """See `Site.extract`. Unknown fields are dropped, since some differ with each answer."""
        try:
            decoded = decode_with_items(body, _SHAPES[stage], "options")
        except UNDECODABLE as error:
            if _CHALLENGE in body:
                raise Challenged("the page is a captcha") from None
            raise Unreadable(f"no {stage}: {error}") from None
        # A cache of the site may answer for another product.
        if str(decoded.described_product) != product_id:
            raise Unreadable(f"it is about product {decoded.described_product}")
        return _with_readable_options(decoded) if isinstance(decoded, _Options) else msgspec.to_builtins(decoded)


def _with_readable_options(decoded: _Options) -> dict[str, Any]:
    """Drop options that cannot be read; their number is part of the content."""
    options = read_items(decoded.options, _Option)
    content = {"product_id": decoded.product_id, "options": msgspec.to_builtins(options.read)}
    return {**content, "skipped_options": len(options.skipped)} if options.skipped else content


def _attribute(node: LexborNode, name: str) -> str:
    return node.attributes.get(name) or ""


def _next_page(page: LexborHTMLParser) -> int | None:
    link = page.css_first('nav.paging a[rel="next"]')
    if link is None:
        return None
    number = parse_qs(urlsplit(_attribute(link, "href")).query).get("page", [""])[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise Unreadable(f"the link to the next page has no valid number: {number[:20]!r}")
    return int(number)
