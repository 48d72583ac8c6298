"""A sale, and kill -9: `python -m chaos.sale [--people N] [--seats N] [--database NAME] [--seed S] [--json]`.

A crowd wants the seats of five concerts, which several instances of the shop sell (examples/ticketing). Instances are
killed all the while, and Valkey is killed twice: once it comes back with what it had written, once with nothing.
Exit 0 when every seat was sold once, those inside could pay while Valkey was away and nobody came in then, the ranking
equals a recount from SQL in its three windows, and telling every payment once more changes nothing.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import uvloop
from examples.ticketing import catalogue
from examples.ticketing.shop import Shop, make_tables, open_shop
from examples.ticketing.verification import count_sold, ranked, recount
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_database
from tests.servers.ports import free_ports
from tests.servers.sql import SqlName

from chaos.progress import Stalled, until
from chaos.sale_audit import (
    Outage,
    Verdict,
    about_to_pay,
    admitted_since,
    audit,
    paid_since,
    seats_ever_held,
    standings,
    tell_again,
)
from chaos.sale_process import PLAN, Part, settings_for
from chaos.servers import LosableValkey
from tidegate.core.telemetry.logs import configure_logs
from tidegate.storage.sql import outbox
from tidegate.systems.waiting_room import RoomPlan

_ROOT = Path(__file__).parents[1]
_HALLS = (5, 4, 3, 2, 1)
"""How large the five concerts are, compared with each other."""
_LAST_PAYMENT_S = 30.0
"""Longer than any simulated pause or hold: without a payment in this time, there is no progress."""


class SalePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and how rough."""

    people: int = 20_000
    seats: int = 500
    shops: int = 3
    crowds: int = 2
    inside: int = 150
    """How many may be inside at once, in all rooms."""
    database: SqlName = "postgres"
    kill_every_s: float = 2.0
    paid_while_away: int = 20
    """So many payments have to happen in each of the times without Valkey."""
    away_s: float = 5.0
    """How long each of them lasts, at least."""
    think_s: float = 0.3
    """How long a buyer thinks before each step, on average."""
    seed: int = 1


class Sale:
    """One run."""

    def __init__(self, plan: SalePlan, shop: Shop, server: LosableValkey, folder: Path) -> None:
        self._plan, self._shop, self._server, self._folder = plan, shop, server, folder
        self._draw = random.Random(plan.seed)
        self._ports = free_ports(plan.shops)
        self._may_kill = asyncio.Event()
        self.verdict = Verdict(people=plan.people, seats=plan.seats)

    async def run(self) -> None:
        """Wait until everything is sold and the ranking is available."""
        people = await self._open()
        async with AsyncExitStack() as stack:
            shops = [await self._start("shop", str(port)) for port in self._ports]
            stack.push_async_callback(_end, shops)
            crowds = [await self._start("crowd", self._part(number, people)) for number in range(self._plan.crowds)]
            stack.push_async_callback(_end, crowds)
            self._may_kill.set()
            killing = asyncio.create_task(self._kill(shops))
            try:
                await self._until_sold(self._plan.seats // 4)
                await self._be_without("killed", loses=False)
                await self._until_sold(self._plan.seats // 2)
                await self._be_without("killed, and its data lost", loses=True)
                await self._until_sold(self._plan.seats)
            finally:
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
            await _end(crowds)
            await self._audit()

    async def _open(self) -> dict[int, int]:
        """Put five evenings on sale; how many people want to go to each."""
        plan, shares, people = self._plan, [share / sum(_HALLS) for share in _HALLS], dict[int, int]()
        halls = [max(1, round(plan.seats * share)) for share in shares]
        halls[0] += plan.seats - sum(halls)
        for number, (hall, share) in enumerate(zip(halls, shares, strict=True)):
            concert = await self._shop.database.transaction(
                catalogue.add_concert, f"Concert {number + 1}", "The Band", "Harbour Hall"
            )
            room = RoomPlan(
                capacity=max(1, round(plan.inside * share)),
                session=timedelta(seconds=20),
                longest_session=timedelta(seconds=60),
                abandon_after=timedelta(days=1),
            )
            starts_at = datetime.now(UTC) + timedelta(days=30)
            schedule = await self._shop.open_sale(concert, starts_at, seats=hall, price=100, room=room)
            people[schedule] = round(plan.people * share)
        return people

    async def _until_sold(self, seats: int) -> None:
        """However long it takes on this machine, as long as something is sold now and then."""

        async def sold() -> int:
            return await self._shop.database.read(count_sold)

        async def are_sold() -> bool:
            return await sold() >= seats

        await until(are_sold, f"{seats} seats are sold", reached=sold)

    async def _be_without(self, how: str, *, loses: bool) -> None:
        """Kill Valkey while admitted visitors pay, then restart it."""
        plan, database = self._plan, self._shop.database
        self._may_kill.clear()  # no instance can start now, and one must continue to sell

        async def held() -> int:
            return await database.read(seats_ever_held)

        await until(self._many_are_about_to_pay, "enough people have a seat to pay for", reached=held)
        self._server.kill()
        outage = Outage(how=how, began=datetime.now(UTC))
        self.verdict.outages.append(outage)

        async def paid() -> int:
            return await database.read(paid_since, outage.began)

        async def are_paid() -> bool:
            outage.payments = await paid()
            outage.admissions = await database.read(admitted_since, outage.began)
            has_lasted = datetime.now(UTC) >= outage.began + timedelta(seconds=plan.away_s)
            return has_lasted and outage.payments >= plan.paid_while_away

        try:
            await until(are_paid, "those inside pay", reached=paid, still_s=_LAST_PAYMENT_S)
        except Stalled:
            self.verdict.breaches.append(f"only {outage.payments} payments while Valkey was away ({how})")
        outage.ended = datetime.now(UTC)
        if outage.admissions:
            self.verdict.breaches.append(f"{outage.admissions} were admitted while Valkey was unavailable ({how})")
        if loses:
            self._server.lose()
        self._server.start()
        self._may_kill.set()

    async def _many_are_about_to_pay(self) -> bool:
        return await self._shop.database.read(about_to_pay) > self._plan.paid_while_away

    async def _audit(self) -> None:
        """First wait for the ranking to be complete, then check every row."""
        began, shop = time.monotonic(), self._shop

        async def is_told() -> bool:
            return await self._is_delivered() and await ranked(shop) == await recount(shop)

        try:
            await until(is_told, "the ranking equals a recount", reached=self._delivered)
        except Stalled:
            self.verdict.breaches.append(f"the ranking is {await ranked(shop)}, a recount {await recount(shop)}")
        self.verdict.caught_up_s = round(time.monotonic() - began, 1)
        await audit(self.verdict, shop)
        before = await standings(shop)
        await tell_again(shop)
        await until(self._is_delivered, "every event is delivered once more", reached=self._delivered)
        if await standings(shop) != before:
            self.verdict.breaches.append("telling every payment once more changed the ranking")

    async def _is_delivered(self) -> bool:
        depth = await self._shop.database.read(outbox.depth)
        return not depth.pending and not depth.dead

    async def _delivered(self) -> int:
        """Higher, the less is left."""
        return -(await self._shop.database.read(outbox.depth)).pending

    async def _kill(self, shops: list[WarmProcess]) -> None:
        """One after the other: the next is not killed before there is another in place of the last."""
        while True:
            await asyncio.sleep(self._plan.kill_every_s * (0.5 + self._draw.random()))
            await self._may_kill.wait()
            number = self._draw.randrange(len(shops))
            shops[number].kill()
            await shops[number].wait()
            self.verdict.killed += 1
            shops[number] = await self._begin("shop", str(self._ports[number]))
            await _there(shops[number])

    def _part(self, number: int, people: dict[int, int]) -> str:
        mine = {schedule: count // self._plan.crowds for schedule, count in people.items()}
        shops = [f"http://127.0.0.1:{port}" for port in self._ports]
        return msgspec.json.encode(Part(f"crowd{number}", mine, shops, self._plan.think_s)).decode()

    async def _start(self, role: str, rest: str) -> WarmProcess:
        process = await self._begin(role, rest)
        await _there(process)
        return process

    async def _begin(self, role: str, rest: str) -> WarmProcess:
        """Start a process; one that begins while Valkey is away has to try until it is back."""
        settings = self._shop.parts.settings
        where = (settings.database_url or "", settings.valkey_url or "", str(self._folder))
        command = (sys.executable, "-m", "chaos.sale_process", role, *where, rest)
        return await start_warm(*command, stdout=PIPE, cwd=_ROOT)


async def conduct(plan: SalePlan, folder: Path) -> Verdict:
    """Create the servers and the shop, run the sale, and read the results."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LosableValkey(keeps=True))
        url = await stack.enter_async_context(migrated_database(plan.database, folder))
        shop = await stack.enter_async_context(open_shop(settings_for(url, server.url, str(folder)), PLAN))
        await make_tables(shop.database)
        sale = Sale(plan, shop, server, folder)
        try:
            await sale.run()
        except Stalled as error:
            sale.verdict.breaches.append(f"it never came to this: {error}")
            sale.verdict.sold = await shop.database.read(count_sold)
        sale.verdict.took_s = round(time.monotonic() - began, 1)
        return sale.verdict


async def _there(process: WarmProcess) -> None:
    """Until it says so."""
    assert process.stdout is not None
    await process.stdout.readline()


async def _end(processes: list[WarmProcess]) -> None:
    for process in processes:
        process.kill()
        await process.wait()


def main() -> int:
    """Run one campaign and print its result."""
    configure_logs("console", "error")
    parser = argparse.ArgumentParser(prog="python -m chaos.sale", description="A sale, and kill -9.")
    defaults = SalePlan()
    for name in ("people", "seats", "shops", "inside", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--paid-while-away", type=int, default=defaults.paid_while_away)
    parser.add_argument("--database", choices=["sqlite", "postgres", "mariadb"], default=defaults.database)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        verdict = uvloop.run(conduct(SalePlan(**options), Path(folder)))
    told = msgspec.json.format(msgspec.json.encode(verdict)).decode()
    print(told if as_json else f"{told}\n{'every rule was kept' if verdict.is_well else 'A RULE WAS BROKEN'}")
    return 0 if verdict.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
