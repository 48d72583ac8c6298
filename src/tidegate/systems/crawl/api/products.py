"""Routes of `/v1/crawl/products`, `/v1/crawl/raws` and `/v1/crawl/dead/replay`.

They show products and the stored answers that products are assembled from, and replay the answers that could not be
applied (dead letters).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import NotFound
from tidegate.engine.api.run_details import Id
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.systems.crawl.api.crawls import TAG
from tidegate.systems.crawl.api.crawls import HostName as Host
from tidegate.systems.crawl.crawls import Crawls
from tidegate.systems.crawl.products import MOST_AT_ONCE, Product, Products
from tidegate.systems.crawl.raws import Raw, Raws, RawState
from tidegate.systems.crawl.tables import LONGEST_PRODUCT

ProductId = Annotated[str, Meta(min_length=1, max_length=LONGEST_PRODUCT, pattern=r"^[!-.0-~]+$")]
Limit = Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)]


class ProductFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of the list of products."""

    host: Host | None = None
    shop: ProductId | None = None
    gone: bool | None = None
    """true: only products that no crawl lists any more; false: only the others."""
    after: Annotated[str, Meta(max_length=500, pattern=r"^[!-.0-~]+/[!-.0-~]+$")] | None = None
    """Only products after this one, in the form `host/product`."""
    limit: Limit = 100


class ProductsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of products, ordered by host and id."""

    products: list[Product]
    next: str | None
    """The address of the next page; null where there is none."""


class RawFilter(RequestInput, frozen=True, kw_only=True):
    """Query parameters of the list of stored answers."""

    state: RawState | None = None
    run: Id | None = None
    host: Host | None = None
    product: ProductId | None = None
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """Only answers with a greater number."""
    limit: Limit = 100


class RawsPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of stored answers without their bodies, oldest first."""

    raws: list[Raw]
    next: str | None
    """The address of the next page; null where there is none."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying a dead letter."""

    id: int
    outcome: Literal["replayed"] = "replayed"


class ReplayedAll(msgspec.Struct, frozen=True, kw_only=True):
    """The result of replaying all dead letters."""

    replayed: int
    refused: list[str]
    """Dead letters that could not be replayed, with the reason: their crawl has another active run."""


class ProductRoutes:
    """Handlers of the routes of products and stored answers."""

    def __init__(self, products: Products, raws: Raws, crawls: Crawls) -> None:
        self._products, self._raws, self._crawls = products, raws, crawls

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of products and stored answers."""
        return [
            route("GET", "/v1/crawl/products", self.list_products, TAG),
            route("GET", "/v1/crawl/products/{host}/{product_id}", self.show_product, TAG),
            route("GET", "/v1/crawl/raws", self.list_raws, TAG),
            route("GET", "/v1/crawl/raws/{raw_id}", self.show_raw, TAG),
            route("POST", "/v1/crawl/raws/{raw_id}/replay", self.replay_raw, TAG),
            route("POST", "/v1/crawl/dead/replay", self.replay_dead_raws, TAG),
        ]

    async def list_products(self, query: ProductFilter) -> ProductsPage:
        """List products in their last known state."""
        page = await self._products.page(
            host=query.host, shop_id=query.shop, is_gone=query.gone, after=query.after, limit=query.limit
        )
        asked = {"host": query.host, "shop": query.shop, "gone": query.gone, "limit": query.limit}
        return ProductsPage(products=page.products, next=_next("/v1/crawl/products", asked, page.next_after))

    async def show_product(self, host: Host, product_id: ProductId) -> Product:
        """Show one product with all its data."""
        return await self._products.get(host, product_id)

    async def list_raws(self, query: RawFilter) -> RawsPage:
        """List stored answers: pending, applied and failed ones (`state=failed`), with reasons."""
        page = await self._raws.page(
            state=query.state,
            run_id=query.run,
            host=query.host,
            product_id=query.product,
            after=query.after,
            limit=query.limit,
        )
        asked = {
            "state": query.state,
            "run": query.run,
            "host": query.host,
            "product": query.product,
            "limit": query.limit,
        }
        return RawsPage(raws=page.raws, next=_next("/v1/crawl/raws", asked, page.next_after))

    async def show_raw(self, raw_id: Id) -> Raw:
        """Show one stored answer, without its body."""
        return await self._raws.get(raw_id)

    async def replay_raw(self, raw_id: Id) -> Replayed:
        """Replay one dead letter."""
        if not await self._crawls.replay_one(raw_id):
            raise NotFound("dead letter", raw_id)
        return Replayed(id=raw_id)

    async def replay_dead_raws(self) -> ReplayedAll:
        """Replay all dead letters."""
        came = await self._crawls.replay()
        return ReplayedAll(replayed=came.replayed, refused=came.refused)


def _next(place: str, asked: Mapping[str, Any], after: object) -> str | None:
    if after is None:
        return None
    given = {name: _text(value) for name, value in asked.items() if value is not None}
    return f"{place}?{urlencode(given | {'after': str(after)})}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
