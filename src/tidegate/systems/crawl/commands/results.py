"""Commands of the results of crawls: products, stored answers, and dead letters among the answers.

`tidegate crawl products`, `product`, `forget`, `raws`, `raw`, `dead` and `replay`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tidegate.cli.wording import clock, counted
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.systems.crawl.commands.opening import JSON, LIMIT, LINES, NAME, ask, print_json, query
from tidegate.systems.crawl.stages import RawState

if TYPE_CHECKING:
    from tidegate.systems.crawl.products import Product
    from tidegate.systems.crawl.raws import RawPage


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

    page = query(
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
        state = "gone since " + clock(one.gone_at, now) if one.gone_at else clock(one.changed_at, now)
        table.add_row(escape(one.place), escape(one.shop_id), *(escape(text) for text in _offer(one)), state)
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
    found = query(lambda database: Products(database).get(host, product_id))
    if as_json:
        print_json(found)
    else:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))


def forget(name: str = NAME, *, as_json: bool = JSON) -> None:
    """Delete the list of products of a crawl that was removed or renamed.

    Products that no other crawl lists are marked as gone when the next run of their host ends.
    """
    from tidegate.systems.crawl.products import Products

    count = query(lambda database: Products(database).forget_crawl(name))
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


_RUN = typer.Option(None, min=1, help="Only answers of this run.")
_AFTER = typer.Option(None, min=0, help="Only answers with a greater number.")


def raws(
    *,
    state: RawState | None = typer.Option(None, help="Only answers in this state."),
    run: int | None = _RUN,
    host: str | None = typer.Option(None, help="Only answers of this host."),
    product: str | None = typer.Option(None, help="Only answers for this product."),
    after: int | None = _AFTER,
    limit: int = LIMIT,
    as_json: bool = LINES,
) -> None:
    """List stored answers: pending, applied and failed ones, with reasons."""
    from tidegate.systems.crawl.raws import Raws

    page = query(
        lambda database: Raws(database).page(
            state=state, run_id=run, host=host, product_id=product, after=after, limit=limit
        )
    )
    _tell(page, "no answers", "raws", as_json=as_json)


def raw(number: int = typer.Argument(min=1, help="Number of a stored answer, as in `raws` and `dead`.")) -> None:
    """Print the body of a stored answer unchanged, for example to examine a page that a parser could not read."""
    from tidegate.systems.crawl.raws import Raws

    sys.stdout.buffer.write(query(lambda database: Raws(database).body(number)))
    sys.stdout.flush()


def dead(*, run: int | None = _RUN, after: int | None = _AFTER, limit: int = LIMIT, as_json: bool = LINES) -> None:
    """List answers that could not be applied to a product, with reasons."""
    from tidegate.systems.crawl.raws import Raws

    page = query(lambda database: Raws(database).page(state=RawState.FAILED, run_id=run, after=after, limit=limit))
    _tell(page, "no dead letters", "dead", as_json=as_json)


def replay(
    numbers: list[int] | None = typer.Argument(None, help="Numbers of dead letters, as `dead` shows them."),
    *,
    every: bool = typer.Option(False, "--all", help="All dead letters."),
    as_json: bool = JSON,
) -> None:
    """Replay dead letters. A running process applies them; without one, the next process that starts does.

    The site is not called. Exit code 1: a dead letter could not be replayed now.
    """
    if bool(numbers) == every:
        raise InvalidArgument(
            "numbers", "some" if numbers else "none", "give numbers of dead letters or --all, not both"
        )
    came = ask(lambda crawl: crawl.crawls.replay(None if every else numbers))
    if not came.replayed and not came.refused and numbers:
        raise NotFound("dead letter", ", ".join(str(one) for one in numbers))
    if as_json:
        print_json(came)
    else:
        typer.echo(f"{counted(came.replayed, 'letter')} replayed")
        for why in came.refused:
            typer.echo(f"not replayed: {why}")
    if came.refused:
        raise typer.Exit(1)


def _tell(page: RawPage, none: str, command: str, *, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tidegate.cli.tables import print_table

    if as_json:
        for one in page.raws:
            print_json(one)
        return
    if not page.raws:
        typer.echo(none)
        return
    table = Table("id", "run", "product", "stage", "state", "tries", "reason", box=None, pad_edge=False)
    for one in page.raws:
        why = one.reason or (f"waits for {one.waits_for}" if one.waits_for else "")
        table.add_row(
            *(str(one.id), str(one.run_id), escape(f"{one.host}/{one.product_id}"), one.stage.value, one.state.value),
            *(str(one.attempts), escape(why)),
        )
    print_table(table)
    if page.next_after is not None:
        typer.echo(f"More: tidegate crawl {command} --after {page.next_after}")
