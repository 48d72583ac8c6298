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
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from examples.ticketing import catalogue
from examples.ticketing.board import Board
from examples.ticketing.shop import Shop, ShopPlan, make_tables, open_shop, process_of
from examples.ticketing.verification import all_sold, ranked, recount, seats_sold_twice
from examples.ticketing.web import serve
from rich.console import Console

from tidegate import InvalidSettings, Settings, configure_logs
from tidegate.http import Binding, HttpSettings
from tidegate.systems.waiting_room import RoomPlan

_ROOT = Path(__file__).parents[2]
_CONCERTS = (
    ("Night Ferry", "The Lighthouse Keepers", "Harbour Hall"),
    ("Songs of Low Water", "Mira Han", "Old Customs House"),
    ("Brass at Dawn", "Pier Nine Orchestra", "Pier Nine"),
    ("Salt and Static", "Tidal Drift", "The Boathouse"),
)
# Pace that a human visitor can keep up with: a wait of 5 to 40 seconds, and then a choice of seats.
_UNHURRIED = {"seats": 480, "hold": 60, "think": 3.0}
_HURRIED = {"seats": 60, "hold": 10, "think": 0.5}
_NEARLY_GONE = 0.1
_LOOK_S = 0.5
_PATIENCE = 60

console = Console(highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    given = _parsed(arguments)
    configure_logs("console", "error")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-ticketing-")))
        try:
            binding = stack.enter_context(Binding(HttpSettings(port=given.port)))
        except InvalidSettings as error:
            console.print(f"{error}; with make: make ticketing ARGS='--port 8421'", markup=False, soft_wrap=True)
            return 1
        return uvloop.run(_run(given, folder, binding))


async def _run(given: argparse.Namespace, folder: Path, binding: Binding) -> int:
    # A request to the bank takes less time than a hold lasts.
    hold_for, soon = timedelta(seconds=given.hold), timedelta(seconds=min(given.hold, 10))
    plan = ShopPlan(hold_for=hold_for, charge_within=soon / 2, settle_after=soon, bank_takes_s=0.1)
    # All visitors of the simulated crowd have one address.
    settings = Settings(data_dir=folder, http=HttpSettings(visitors_per_address=0))
    async with open_shop(settings, plan) as shop:
        await make_tables(shop.database)
        for title, artist, venue in _CONCERTS:
            concert = await shop.database.transaction(catalogue.add_concert, title, artist, venue)
            await _open_evening(shop, concert, given)
        process = process_of(shop, {"http": serve(shop, binding)})
        running = asyncio.create_task(process.run(handle_signals=True))
        console.print(f"The shop is at [bold]{binding.url}[/]: open it, and stand in line with {given.people} others.")
        console.print(f"A seat is held for {given.hold} seconds.{'' if given.once else ' Ctrl-C ends it.'}")
        watching = asyncio.create_task(_watch(shop, given))
        try:
            with _crowd(binding.url, given):
                await asyncio.wait([running, watching], return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
                return await _prove(shop)
            await _cancel(watching)  # it no longer writes to the terminal
            console.print("stopped")
            return 130 if given.once else 0
        finally:
            await _cancel(watching)
            process.stop()
            await running


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


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
    """Show the progress. A concert that is nearly sold out gets another evening, unless the demo is about to end.

    So there is always a free seat for a human visitor.
    """
    with Board(console) as board:
        while True:
            sales = await board.show(shop)
            if given.once and not any(sale.seats.left for sale in sales):
                return
            free = Counter[int]()
            for sale in sales:
                free[sale.schedule.concert.id] += sale.seats.free
            for concert, seats in free.items():
                if not given.once and seats <= given.seats * _NEARLY_GONE:
                    await _open_evening(shop, concert, given)
            await asyncio.sleep(_LOOK_S)


async def _prove(shop: Shop) -> int:
    """Print the sales, and verify the result."""
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
    command = [sys.executable, "-m", "examples.ticketing.visitors", url]
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
    parser.add_argument("--people", type=_count, default=80, help="how many want tickets at a time (80)")
    parser.add_argument("--seats", type=_count, help="of each evening (480; with --once: 60)")
    parser.add_argument(
        "--inside", type=_count, default=8, help="how many may choose seats of an evening at a time (8)"
    )
    parser.add_argument("--hold", type=_count, help="for how many seconds a seat is held (60; with --once: 10)")
    parser.add_argument("--think", type=float, help="how long people think, in seconds (3; with --once: 0.5)")
    parser.add_argument("--once", action="store_true", help="end when everything is sold, and verify the result")
    given = parser.parse_args(arguments)
    for name, usual in (_HURRIED if given.once else _UNHURRIED).items():
        if getattr(given, name) is None:
            setattr(given, name, usual)
    return given


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 100,000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
