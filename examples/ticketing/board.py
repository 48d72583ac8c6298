"""How the sale goes, in the terminal."""

from types import TracebackType
from typing import Self

import msgspec
from examples.ticketing import catalogue
from examples.ticketing.catalogue import Schedule, SeatCounts
from examples.ticketing.concert_ranking import ConcertRanking, popular_concerts
from examples.ticketing.reservations import room_of
from examples.ticketing.shop import Shop
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate import Unavailable

_MOST_SHOWN = 10
_SEATS = ("free", "held", "sold")


class SaleView(msgspec.Struct, frozen=True, kw_only=True):
    """How an evening sells."""

    schedule: Schedule
    seats: SeatCounts
    waiting: int | None
    """None if it is unknown, or the evening is sold out."""
    inside: int | None


class Board:
    """A table that changes in place; where there is no terminal, a line whenever something changed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._told = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    async def show(self, shop: Shop) -> list[SaleView]:
        """Read the state and show it."""
        schedules = await shop.database.read(catalogue.all_schedules)
        counts = await shop.database.read(catalogue.seat_counts, [each.id for each in schedules])
        sales = [await _sale(shop, each, counts[each.id]) for each in schedules]
        popular = await popular_concerts(shop, limit=3)
        if self._live is not None:
            self._live.update(Group(_table(sales), _top(popular, sales)), refresh=True)
        else:
            self._tell(sales, popular)
        return sales

    def _tell(self, sales: list[SaleView], popular: ConcertRanking) -> None:
        waiting, inside = (sum(count or 0 for count in each) for each in _counts(sales))
        seats = "  ".join(f"{name} {sum(getattr(sale.seats, name) for sale in sales)}" for name in _SEATS)
        line = f"{seats}  waiting {waiting}  inside {inside}  {_top(popular, sales)}"
        if line != self._told:
            self._console.print(line, soft_wrap=True)
        self._told = line


def _counts(sales: list[SaleView]) -> tuple[list[int | None], list[int | None]]:
    return [sale.waiting for sale in sales], [sale.inside for sale in sales]


async def _sale(shop: Shop, schedule: Schedule, seats: SeatCounts) -> SaleView:
    if not seats.left:
        return SaleView(schedule=schedule, seats=seats, waiting=None, inside=None)
    try:
        counts = await (await shop.rooms.room(room_of(schedule.id))).counts()
    except Unavailable:
        return SaleView(schedule=schedule, seats=seats, waiting=None, inside=None)
    return SaleView(schedule=schedule, seats=seats, waiting=counts.waiting, inside=counts.active)


def _table(sales: list[SaleView]) -> Table:
    table = Table("evening", "date", box=None, padding=(0, 2, 0, 0))
    for name in ("waiting", "inside", *_SEATS):
        table.add_column(name, justify="right")
    on_sale = [sale for sale in sales if sale.seats.left]
    for sale in [*[sale for sale in sales if not sale.seats.left][-4:], *on_sale][-_MOST_SHOWN:]:
        counts = ["" if count is None else str(count) for count in (sale.waiting, sale.inside)]
        seats = [str(sale.seats.free), str(sale.seats.held), str(sale.seats.sold)]
        told = seats if sale.seats.left else ["", "", "sold out"]
        table.add_row(sale.schedule.concert.title, f"{sale.schedule.starts_at:%d %b}", *counts, *told)
    return table


def _top(popular: ConcertRanking, sales: list[SaleView]) -> Text:
    if not any(sale.seats.sold for sale in sales):
        return Text("popular today: nothing sold yet")
    if popular.degraded:
        return Text("popular today: unknown")
    return Text("popular today: " + (", ".join(concert.title for concert in popular.concerts) or "nothing yet"))
