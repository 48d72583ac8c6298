"""The shop with a crowd, on embedded parts: `python -m examples.ticketing`, or `make ticketing`. Ctrl-C ends it.

Everything lives in a temporary folder, and goes with it. With `--once` it ends when every seat is sold, and proves what
it did: exit 0 when no seat was sold twice and the ranking equals a recount.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from examples.ticketing import catalogue
from examples.ticketing.board import Board
from examples.ticketing.proof import all_sold, ranked, recount, seats_sold_twice
from examples.ticketing.shop import Shop, ShopPlan, make_tables, open_shop, process_of
from examples.ticketing.web import serve
from rich.console import Console

from tidegate.crowd.waiting_room import RoomPlan
from tidegate.http import Binding
from tidegate.kernel.errors import InvalidSettings
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.settings.http import HttpSettings
from tidegate.telemetry.logs import configure

_ROOT = Path(__file__).parents[2]
_CONCERTS = (
    ("Night Ferry", "The Lighthouse Keepers", "Harbour Hall"),
    ("Songs of Low Water", "Mira Han", "Old Customs House"),
    ("Brass at Dawn", "Pier Nine Orchestra", "Harbour Hall"),
    ("Salt and Static", "Tidal Drift", "The Boathouse"),
)
_LOOK_S = 0.5
_PATIENCE = 60

console = Console(highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    given = _parsed(arguments)
    configure("console", "error")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-ticketing-")))
        try:
            binding = stack.enter_context(Binding(HttpSettings(port=given.port)))
        except InvalidSettings as error:
            console.print(str(error))
            return 1
        return uvloop.run(_run(given, folder, binding))


async def _run(given: argparse.Namespace, folder: Path, binding: Binding) -> int:
    # People who wait for the bank wait less than a hold lasts.
    hold_for, soon = timedelta(seconds=given.hold), timedelta(seconds=min(given.hold, 10))
    plan = ShopPlan(hold_for=hold_for, charge_within=soon / 2, settle_after=soon, bank_takes_s=0.1)
    async with open_shop(Settings(data_dir=folder), plan) as shop:
        await make_tables(shop.database)
        for title, artist, venue in _CONCERTS:
            concert = await shop.database.transaction(catalogue.add_concert, title, artist, venue)
            await _open_evening(shop, concert, given)
        process = process_of(shop, {"http": serve(shop, binding)})
        running = asyncio.create_task(process.run())
        console.print(f"The shop is at [bold]{binding.url}[/]: open it, and stand in line with {given.people} others.")
        console.print("" if given.once else "Ctrl-C ends it.")
        watching = asyncio.create_task(_watch(shop, given))
        try:
            with _crowd(binding.url, given):
                await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                return await _prove(shop)
            await end(watching)  # which leaves the terminal to us
            console.print("stopped")
            return 130 if given.once else 0
        finally:
            await end(watching)
            process.stop()
            await running


async def _open_evening(shop: Shop, concert: int, given: argparse.Namespace) -> None:
    """Put one more evening of a concert on sale."""
    already = await shop.database.read(catalogue.all_schedules)
    nth = sum(each.concert.id == concert for each in already)
    starts_at = datetime.now(UTC).replace(hour=10, minute=30, second=0, microsecond=0) + timedelta(days=30 + nth)
    room = RoomPlan(
        capacity=given.inside,
        session=timedelta(minutes=2),
        longest_session=timedelta(minutes=10),
        abandon_after=timedelta(minutes=1),
    )
    await shop.open_sale(concert, starts_at, seats=given.seats, price=55_000, room=room)


async def _watch(shop: Shop, given: argparse.Namespace) -> None:
    """Show how it goes; a concert that is sold out is given once more, unless all should end then."""
    with Board(console) as board:
        while True:
            sales = await board.show(shop)
            sold_out = [sale for sale in sales if not sale.left]
            if given.once and len(sold_out) == len(sales):
                return
            for concert in {sale.schedule.concert.id for sale in sales}:
                if not given.once and all(not sale.left for sale in sales if sale.schedule.concert.id == concert):
                    await _open_evening(shop, concert, given)
            await asyncio.sleep(_LOOK_S)


async def _prove(shop: Shop) -> int:
    """Say what was sold, and whether everything is as it should be."""
    agrees = False
    for _ in range(_PATIENCE):  # the last events are on their way
        if agrees := await ranked(shop) == await recount(shop):
            break
        await asyncio.sleep(_LOOK_S)
    sold = await shop.database.read(all_sold)
    twice = seats_sold_twice(sold)
    console.print(f"\nseats sold: {len(sold)}")
    console.print(f"seats sold twice: {len(twice)}")
    console.print(f"the ranking equals a recount: {'yes' if agrees else 'NO'}")
    return 0 if agrees and not twice else 1


@contextmanager
def _crowd(url: str, given: argparse.Namespace) -> Generator[None]:
    """The crowd, in a process of its own, for the length of a block."""
    command = [sys.executable, "-m", "examples.ticketing.crowd", url]
    process = subprocess.Popen(
        [*command, "--people", str(given.people), "--think", str(given.think)], cwd=_ROOT, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.ticketing", description="A ticket shop with a crowd.")
    parser.add_argument("--port", type=int, choices=range(65536), metavar="N", default=8420, help="0: any free one")
    parser.add_argument("--people", type=_count, default=300, help="how many want tickets at a time")
    parser.add_argument("--seats", type=_count, default=120, help="of each evening")
    parser.add_argument("--inside", type=_count, default=12, help="how many may choose seats of an evening at a time")
    parser.add_argument("--hold", type=_count, default=60, help="for how many seconds a seat is held")
    parser.add_argument("--think", type=float, default=1.5, help="how long people think, in seconds")
    parser.add_argument("--once", action="store_true", help="end when everything is sold, and prove what was done")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 100,000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
