"""What an honest answer to a call is."""

import zlib
from array import array
from collections.abc import Callable
from email.utils import formatdate, parsedate_to_datetime
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

from tidegate_simulators.http_server import JSON, Reply, Request, error, is_known
from tidegate_simulators.marketplace import pages
from tidegate_simulators.marketplace.config import Behaviour, Route
from tidegate_simulators.marketplace.documents import Documents
from tidegate_simulators.marketplace.world import Product, World

HTML = {"Content-Type": "text/html; charset=utf-8"}
_CACHE = {"Cache-Control": "private, max-age=0, must-revalidate"}
_VARY = {"Vary": "Accept-Encoding"}
_GZIP = _VARY | {"Content-Encoding": "gzip"}
_LONGEST_NUMBER = 12
_MOST_LISTINGS_KEPT = 1_000


class Asked(NamedTuple):
    """What is asked for."""

    route: Route
    number: int = 0
    """Of the product; of the shop, where it is asked for by itself or beside a product."""


class _Listing(NamedTuple):
    body: bytes
    tag: bytes
    relisted: int


def asked(path: bytes) -> Asked:
    """What a path asks for, once it is unquoted."""
    match path.split(b"/")[1:]:
        case [b"search"]:
            return Asked(Route.SEARCH)
        case [b"robots.txt"]:
            return Asked(Route.ROBOTS)
        case [b"api", b"products", number] if _is_number(number):
            return Asked(Route.DETAIL, int(number))
        case [b"api", b"products", number, b"options"] if _is_number(number):
            return Asked(Route.OPTION, int(number))
        case [b"api", b"shops", number, b"mini"] if _is_number(number):
            return Asked(Route.MINI_SHOP, int(number))
        case [b"products" | b"shops", number] if _is_number(number):
            return Asked(Route.PAGE, int(number))
        case [b""] | [b"cart" | b"account", *_]:
            return Asked(Route.PAGE)
        case _:
            return Asked(Route.UNKNOWN)


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _LONGEST_NUMBER


class Answers:
    """The answers of all hosts."""

    def __init__(self, world: World, documents: Documents, behaviour: Behaviour) -> None:
        self._world, self._documents, self._behaviour = world, documents, behaviour
        self._encode = msgspec.json.Encoder().encode
        self._listings: dict[tuple[int, str, int], _Listing] = {}
        self._served = 0
        self._products: dict[Route, Callable[[Product], tuple[dict[str, Any], tuple[int, ...]]]] = {
            Route.MINI_SHOP: lambda one: (self._documents.mini_shop(one), (one.offered, one.settled)),
            Route.DETAIL: lambda one: (self._documents.detail(one), (one.offered, one.described)),
            Route.OPTION: lambda one: (self._documents.options(one), (one.stocked,)),
        }

    def answer(self, host: int, request: Request, wanted: Asked) -> Reply:
        """To a call for anything but robots.txt."""
        if request.method not in (b"GET", b"HEAD"):
            return error(405, "method", "This can only be read.", Allow="GET, HEAD")
        match wanted.route:
            case Route.SEARCH:
                return self._search(host, request)
            case Route.MINI_SHOP | Route.DETAIL | Route.OPTION:
                return self._document(host, request, wanted)
            case Route.PAGE:
                return self._page(host, request, wanted)
            case _:
                return error(404, "unknown", "There is /search?q={keyword}, and what its links lead to.")

    def plain(self, host: int, request: Request, wanted: Asked) -> bytes:
        """The body for a client that has no cached copy and accepts no compression."""
        return self.answer(host, msgspec.structs.replace(request, headers={}, takes_gzip=False), wanted).body

    def _search(self, host: int, request: Request) -> Reply:
        query = parse_qs(request.query.decode("latin-1"), encoding="utf-8")
        keyword, page = query.get("q", [""])[0].strip(), query.get("page", ["1"])[0]
        if not keyword or not (page.isascii() and page.isdigit() and 0 < int(page[:9]) == int(page)):
            return self._html(request, 400, pages.simple("Say what you look for: /search?q=…&page=1", []))
        listing = self._listing(host, keyword, int(page))
        return self._validated(request, listing.tag, listing.relisted, HTML, lambda: listing.body)

    def _listing(self, host: int, keyword: str, page: int) -> _Listing:
        """A page of a search, made once for as long as nothing in it changes."""
        found, relisted = self._world.listing(host, keyword)
        key = host, keyword, page
        kept = self._listings.get(key)
        if kept is not None and kept.relisted == relisted:
            return kept
        each = self._world.shape.per_page
        shown = self._world.at(found[(page - 1) * each : page * each])
        body = pages.listing(
            self._documents, keyword, shown, page=page, pages=-(-len(found) // each) or 1, total=len(found)
        )
        made = _Listing(body, _tag_of(shown, len(found)), relisted)
        if len(self._listings) >= _MOST_LISTINGS_KEPT:
            del self._listings[next(iter(self._listings))]
        self._listings[key] = made
        return made

    def _document(self, host: int, request: Request, wanted: Asked) -> Reply:
        route, number = wanted
        if route is Route.MINI_SHOP:
            text = parse_qs(request.query.decode("latin-1")).get("product", [""])[0]
            number = int(text) if _is_number(text.encode()) else 0
        product = self._world.find(number)
        if product is None and self._world.was_sold(number, host):
            return error(410, "gone", f"Product {number} is no longer sold.")
        if product is None or product.host != host or (route is Route.MINI_SHOP and product.shop_id != wanted.number):
            return error(404, "not_found", f"There is no product {number} here.")
        document, steps = self._products[route](product)
        tag = b'W/"%x-%b"' % (product.id, b"-".join(b"%x" % step for step in steps))
        return self._validated(request, tag, max(steps), JSON, lambda: self._encode(document))

    def _page(self, host: int, request: Request, wanted: Asked) -> Reply:
        number, section = wanted.number, request.path.split(b"/")[1].decode("latin-1")
        if section == "products":
            product = self._world.find(number)
            if product is None or product.host != host:
                return self._html(request, 404, pages.simple("This product is not sold here", []))
            links = [(f"/api/products/{number}", "Details"), (f"/shops/{product.shop_id}", "The shop")]
            return self._html(request, 200, pages.simple(self._documents.offer(product).name, links))
        if section == "shops" and not self._world.has_shop(number, host):
            return self._html(request, 404, pages.simple("This shop is not here", []))
        return self._html(request, 200, pages.simple(section.title() or "Harbour Market", [("/", "Home")]))

    def _html(self, request: Request, status: int, body: bytes) -> Reply:
        return self._packed(request, status, body, HTML)

    def _validated(
        self, request: Request, tag: bytes, changed: int, kind: dict[str, str], body: Callable[[], bytes]
    ) -> Reply:
        """The content, or 304 if the client has it."""
        if not self._behaviour.validators:
            return self._packed(request, 200, body(), kind)
        shape = self._world.shape
        changed_s = int(shape.epoch.timestamp()) + changed * shape.step_s
        validators = {"ETag": tag.decode(), "Last-Modified": formatdate(changed_s, usegmt=True)} | _CACHE
        if _has_it(request.headers, tag, changed_s):
            return Reply(304, b"", validators)
        return self._packed(request, 200, body(), kind | validators)

    def _packed(self, request: Request, status: int, body: bytes, headers: dict[str, str]) -> Reply:
        if self._behaviour.noise:
            body = self._with_noise(body, is_json=headers["Content-Type"] == JSON["Content-Type"])
        if self._behaviour.compress and request.takes_gzip:
            body = zlib.compress(body, 1, 31)
            return Reply(status, body, headers | _GZIP)
        return Reply(status, body, headers | _VARY)

    def _with_noise(self, body: bytes, *, is_json: bool) -> bytes:
        self._served += 1
        if is_json:
            return b'%b,"trace_id":"%016x"}' % (body[:-1], self._served)
        return b"%b<!-- web-%02d %016x -->\n" % (body, self._served % 16, self._served)


def _tag_of(shown: list[Product], total: int) -> bytes:
    """Of a page of a search: what is on it, at which price, and how many there are in all."""
    content = array("Q", [total, *[product.row << 32 | product.offered for product in shown]])
    return b'W/"%b"' % blake2b(content.tobytes(), digest_size=8).hexdigest().encode()


def _has_it(fields: dict[bytes, bytes], tag: bytes, changed_s: int) -> bool:
    """Whether the client's copy is the present one; If-None-Match goes before If-Modified-Since."""
    wanted = fields.get(b"if-none-match")
    if wanted is not None:
        return is_known(wanted, tag)
    since = fields.get(b"if-modified-since")
    if since is None:
        return False
    try:
        return parsedate_to_datetime(since.decode("latin-1")).timestamp() >= changed_s
    except ValueError:
        return False
