"""The built-in site: a marketplace with HTML listings, and JSON for shops, details and options of products."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tidegate.core.errors import UNDECODABLE
from tidegate.engine.items import read_items
from tidegate.systems.crawl.site import Challenged, Listing, Unreadable
from tidegate.systems.crawl.stages import Stage

_END = b"</html>"
_AFTER_END = 400
"""Bytes in which a whole page ends; some servers write a comment behind the end."""
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
    def about(self) -> int:
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
    def about(self) -> int:
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
    def about(self) -> int:
        return self.product_id


_DECODERS: Mapping[Stage, msgspec.json.Decoder[_MiniShop | _Detail | _Options]] = {
    Stage.MINI_SHOP: msgspec.json.Decoder(_MiniShop),
    Stage.DETAIL: msgspec.json.Decoder(_Detail),
    Stage.OPTION: msgspec.json.Decoder(_Options),
}


class MarketplaceSite:
    """The layout that `tidegate_simulators.marketplace` has too."""

    name = "marketplace"

    def search_path(self, keyword: str, page: int) -> str:
        """See `Site.search_path`."""
        return f"/search?{urlencode({'q': keyword, 'page': page})}"

    def read_listing(self, body: bytes) -> Listing:
        """See `Site.read_listing`. A page that does not end as pages do is broken off: links may be missing."""
        if _END not in body[-_AFTER_END:]:
            raise Unreadable("the listing is broken off")
        page = LexborHTMLParser(body)
        if page.css_first("ul.search-list") is None or page.css_first("nav.paging .current") is None:
            if page.css_first("#challenge-form") is not None:
                raise Challenged("asked whether we are human")
            raise Unreadable("the page is no listing")
        cards = page.css("li.product-card[data-product-id]")
        products = ((_attribute(card, "data-product-id"), _attribute(card, "data-shop-id")) for card in cards)
        return Listing.of(products, _next_page(page))

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
        """See `Site.extract`. Fields that are not known are left out: some differ with each answer."""
        try:
            said = _DECODERS[stage].decode(body)
        except UNDECODABLE as error:
            if _CHALLENGE in body:
                raise Challenged("asked whether we are human") from None
            raise Unreadable(f"no {stage}: {error}") from None
        if str(said.about) != product_id:
            raise Unreadable(f"it is about product {said.about}")
        return _with_readable_options(said) if isinstance(said, _Options) else msgspec.to_builtins(said)


def _with_readable_options(said: _Options) -> dict[str, Any]:
    """An option that cannot be read is left out; how many were is part of the content."""
    options = read_items(said.options, _Option)
    content = {"product_id": said.product_id, "options": msgspec.to_builtins(options.read)}
    return {**content, "skipped_options": len(options.skipped)} if options.skipped else content


def _attribute(node: LexborNode, name: str) -> str:
    return node.attributes.get(name) or ""


def _next_page(page: LexborHTMLParser) -> int | None:
    link = page.css_first('nav.paging a[rel="next"]')
    if link is None:
        return None
    number = parse_qs(urlsplit(_attribute(link, "href")).query).get("page", [""])[0]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise Unreadable(f"the link to the next page leads nowhere: {number[:20]!r}")
    return int(number)
