"""`tidegate crawl products`, `product` and `forget`: products that crawls have found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.wording import clock, counted
from tidegate.core.errors import InvalidArgument
from tidegate.systems.crawl.commands.opening import JSON, LIMIT, LINES, NAME, look, print_json

if TYPE_CHECKING:
    from tidegate.systems.crawl.products import Product


def products(
    *,
    host: str | None = typer.Option(None, help="Only products of this host."),
    shop: str | None = typer.Option(None, help="Only products of this shop."),
    gone: bool | None = typer.Option(None, "--gone/--listed", help="Only gone or only listed products."),
    after: str | None = typer.Option(None, help="Only products after this one: host/product."),
    limit: int = LIMIT,
    as_json: bool = LINES,
) -> None:
    """List products, ordered by host and id."""
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table
    from tidegate.systems.crawl.products import Products

    page = look(
        lambda database: Products(database).page(host=host, shop_id=shop, is_gone=gone, after=after, limit=limit)
    )
    if as_json:
        for one in page.products:
            print_json(one)
        return
    if not page.products:
        typer.echo("no products" if after is None else f"no products after {after}")
        return
    table, now = Table("product", "shop", "name", "price", "changed", box=None, pad_edge=False), datetime.now(UTC)
    for one in page.products:
        told = "gone since " + clock(one.gone_at, now) if one.gone_at else clock(one.changed_at, now)
        table.add_row(escape(one.place), escape(one.shop_id), *(escape(text) for text in _offer(one)), told)
    print_table(table)
    if page.next_after is not None:
        typer.echo(f"More: tidegate crawl products --after {page.next_after}")


def product(
    place: str = typer.Argument(help="host/product, as `products` shows it."),
    *,
    as_json: bool = JSON,
) -> None:
    """Show one product with all its data."""
    from tidegate.systems.crawl.products import Products

    host, _, product_id = place.partition("/")
    if not host or not product_id:
        raise InvalidArgument("product", place, "must be host/product, as `tidegate crawl products` shows it")
    found = look(lambda database: Products(database).get(host, product_id))
    if as_json:
        print_json(found)
    else:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))


def forget(name: str = NAME, *, as_json: bool = JSON) -> None:
    """Delete the list of products of a crawl that was removed or renamed.

    Products that no other crawl lists are marked as gone when the next run of their host ends.
    """
    from tidegate.systems.crawl.products import Products

    count = look(lambda database: Products(database).forget_crawl(name))
    if as_json:
        print_json({"forgotten": count})
    else:
        typer.echo(f"{name} no longer lists {counted(count, 'product')}")


def _offer(one: Product) -> tuple[str, str]:
    """Name and price of a product, if the site has them."""
    parts: list[dict[str, Any]] = [part for part in (one.detail, one.mini_shop) if part]
    name = next((str(part["name"]) for part in parts if "name" in part), "")
    price = next((f"{part['price']} {part.get('currency', '')}".strip() for part in parts if "price" in part), "")
    return name, price
