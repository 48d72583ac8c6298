"""Pages for people: the listing of a search, and as much of the others as a link needs to lead somewhere."""

from html import escape
from urllib.parse import quote_plus

from tidegate_simulators.marketplace.documents import Documents
from tidegate_simulators.marketplace.world import Product

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} | Harbour Market</title>
<link rel="stylesheet" href="/assets/market.css">
<script>window.__MARKET__={{"locale":"en","currency":"EUR","flags":[1,0,1]}};</script>
</head>
<body class="page page--{kind}">
<header class="top"><a class="logo" href="/">Harbour Market</a>
<form class="search" action="/search"><input name="q" value="{query}"><button type="submit">Search</button></form>
<nav><a href="/account/orders">My orders</a><a href="/cart/view">Cart</a></nav></header>
"""
_CARD = """<li class="product-card" id="product-%s" data-product-id="%s" data-shop-id="%s" data-rank="%s">
<a class="product-card__link" href="/products/%s?src=search&amp;rank=%s">
<img class="product-card__image" loading="lazy" src="/images/%s/0.jpg" alt="%s">
<div class="product-card__name">%s</div></a>
<div class="product-card__price">%s<strong class="price" data-cents="%s">%s</strong> <span>EUR</span></div>
<div class="product-card__shop"><a href="/shops/%s">Shop %s</a></div>%s
<a class="product-card__add" rel="nofollow" href="/cart/add?product=%s">Add to cart</a>
</li>
"""
_OLD_PRICE = '<del class="price--old">{old}</del> '
_SOLD_OUT = '\n<span class="badge badge--sold-out">Sold out</span>'
_ADVERTISEMENT = (
    '<li class="product-card product-card--ad"><a href="/cart/help?ad={rank}">Free shipping for members</a></li>\n'
)
_ADVERTISED_AT = 4
_FOOT = """<footer><p>Harbour Market is simulated: nothing here is for sale.</p></footer>
</body>
</html>
"""
CAPTCHA = (
    _HEAD.format(title="One moment", kind="challenge", query="")
    + """<main><h1>Are you a human?</h1><p>We noticed unusual traffic from your network.</p>
<form id="challenge-form" action="/challenge" method="post"><div class="captcha" data-sitekey="simulated"></div></form>
</main>
"""
    + _FOOT
).encode()
BUSY = (
    _HEAD.format(title="Maintenance", kind="maintenance", query="")
    + "<main><h1>We will be back soon</h1></main>\n"
    + _FOOT
).encode()


def listing(documents: Documents, keyword: str, found: list[Product], *, page: int, pages: int, total: int) -> bytes:
    """One page of what a search finds."""
    parts = [_HEAD.format(title=escape(keyword), kind="search", query=escape(keyword))]
    parts.append(f'<main><h1>{total} products for "{escape(keyword)}"</h1>\n<ul class="search-list">\n')
    for rank, product in enumerate(found):
        if rank == _ADVERTISED_AT:
            parts.append(_ADVERTISEMENT.format(rank=rank))
        parts.append(_card(documents, product, rank))
    parts.append("</ul>\n" if found else '</ul>\n<p class="nothing">Nothing was found.</p>\n')
    parts.append(_paging(keyword, page, pages))
    parts.append("</main>\n" + _FOOT)
    return "".join(parts).encode()


def _card(documents: Documents, product: Product, rank: int) -> str:
    offer = documents.offer(product)
    number, shop, name = product.id, product.shop_id, escape(offer.name)
    old = _OLD_PRICE.format(old=_shown(offer.list_price)) if offer.price < offer.list_price else ""
    sold_out = _SOLD_OUT if offer.is_sold_out else ""
    return _CARD % (
        *(number, number, shop, rank, number, rank, number, name, name),
        *(old, offer.price, _shown(offer.price), shop, shop, sold_out, number),
    )


def _shown(cents: int) -> str:
    # For each of forty products on a page: this is twice as fast as an f-string.
    return "%d.%02d" % divmod(cents, 100)  # noqa: UP031


def _paging(keyword: str, page: int, pages: int) -> str:
    address = f"/search?q={quote_plus(keyword)}&amp;page="
    links = [f'<span class="current" data-page="{page}" data-pages="{pages}">{page} of {pages}</span>']
    if page > 1:
        links.insert(0, f'<a rel="prev" href="{address}{page - 1}">Previous</a>')
    if page < pages:
        links.append(f'<a rel="next" href="{address}{page + 1}">Next</a>')
    return f'<nav class="paging">{" ".join(links)}</nav>\n<a href="{address}1&amp;sort=price">Sort by price</a>\n'


def simple(title: str, links: list[tuple[str, str]]) -> bytes:
    """A page with a title and some links, each an address and its text."""
    listed = "".join(f'<li><a href="{escape(address)}">{escape(text)}</a></li>\n' for address, text in links)
    page = _HEAD.format(title=escape(title), kind="simple", query="")
    return f"{page}<main><h1>{escape(title)}</h1><ul>\n{listed}</ul></main>\n{_FOOT}".encode()
