"""Reads the products that crawls have found, and deletes the sightings of a crawl."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, and_, delete, func, select, tuple_

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.stages import STAGES
from tidegate.systems.crawl.tables import crawl_products, crawl_sightings

MOST_AT_ONCE = 1_000
_c = crawl_products.c


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """A product as it was last seen."""

    host: str
    product_id: str
    shop_id: str
    site: str
    mini_shop: dict[str, Any] | None
    detail: dict[str, Any] | None
    option: dict[str, Any] | None
    missing: dict[str, str]
    """Stages that the last run could not fetch, with reasons."""
    applied: int
    """Number of answers that changed it."""
    first_seen_at: datetime
    changed_at: datetime
    gone_at: datetime | None
    """The time since which no crawl lists it."""

    @property
    def place(self) -> str:
        """Its position in the order of all products, used as `next_after`."""
        return f"{self.host}/{self.product_id}"


class ProductPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of products, by host and id."""

    products: list[Product]
    next_after: str | None
    """Pass this as `after` for the next page; None on the last one."""


class Products:
    """Products that crawls have found, and the sightings of each crawl."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, host: str, product_id: str) -> Product:
        """Return one product; raises `NotFound`."""
        return await self._database.read(_get, host, product_id)

    async def page(
        self,
        *,
        host: str | None = None,
        shop_id: str | None = None,
        is_gone: bool | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> ProductPage:
        """One page of products, filtered by host, shop and whether they are gone, after `after`."""
        require_whole("limit", limit, least=1, most=MOST_AT_ONCE)
        those = _conditions(host, is_gone)
        if shop_id is not None:
            those.append(_c.shop_id == shop_id)
        if after is not None:
            those.append(_is_after(after))
        products = await self._database.read(_page, those, limit)
        return ProductPage(products=products, next_after=products[-1].place if len(products) == limit else None)

    async def count(self, *, host: str | None = None, is_gone: bool | None = None) -> int:
        """Count products, filtered by host and whether they are gone."""
        return await self._database.read(_count, _conditions(host, is_gone))

    async def forget_crawl(self, crawl: str) -> int:
        """Delete the sightings of a crawl, but not its products; returns the number of sightings.

        The next run marks products as gone that no crawl lists any more.
        """
        return await self._database.transaction(_forget_crawl, require_name("crawl", crawl))


def _conditions(host: str | None, is_gone: bool | None) -> list[ColumnElement[bool]]:
    those = list[ColumnElement[bool]]()
    if host is not None:
        those.append(_c.host == host)
    if is_gone is not None:
        those.append(_c.gone_at.is_not(None) if is_gone else _c.gone_at.is_(None))
    return those


def _is_after(after: str) -> ColumnElement[bool]:
    host, slash, product_id = after.partition("/")
    if not host or not slash or not product_id:
        raise InvalidArgument("after", after[:80], "must be the `next_after` of a page: host/product")
    return tuple_(_c.host, _c.product_id) > (host, product_id)


def _get(tx: Transaction, host: str, product_id: str) -> Product:
    found = select(crawl_products).where(_c.host == host, _c.product_id == product_id)
    row = tx.execute(found).one_or_none()
    if row is None:
        raise NotFound("product", f"{host}/{product_id}")
    return _product(row)


def _page(tx: Transaction, those: list[ColumnElement[bool]], limit: int) -> list[Product]:
    # The page is found with indexes alone; whole rows, which may be long, are read for one page only.
    page = select(_c.host, _c.product_id).where(*those).order_by(_c.host, _c.product_id).limit(limit).subquery()
    same = and_(page.c.host == _c.host, page.c.product_id == _c.product_id)
    found = select(crawl_products).join(page, same).order_by(_c.host, _c.product_id)
    return [_product(row) for row in tx.execute(found)]


def _count(tx: Transaction, those: list[ColumnElement[bool]]) -> int:
    return tx.execute(select(func.count()).select_from(crawl_products).where(*those)).scalar_one()


def _forget_crawl(tx: Transaction, crawl: str) -> int:
    return tx.execute(delete(crawl_sightings).where(crawl_sightings.c.crawl == crawl)).rowcount


def _product(row: Row[*tuple[Any, ...]]) -> Product:
    values = row._mapping  # pyright: ignore[reportPrivateUsage]
    names = ("host", "product_id", "shop_id", "site", "applied", "first_seen_at", "changed_at", "gone_at")
    contents = {stage.value: values[f"{stage}_content"] for stage in STAGES}
    return Product(missing=values["missing"] or {}, **contents, **{name: values[name] for name in names})
