"""A rush on coupons, and kill -9: `python -m chaos.rush [--attempts N] [--users N] [--stock N] [--instances N]
[--kill-every SECONDS] [--database NAME] [--seed S] [--json]`.

Everybody wants a coupon, and tries several times over HTTP, at whichever instance answers; instances are killed all the
while, and started again. Whoever got no answer asks again with the same idempotency key. Beside it another campaign
gives points. Exit 0 when exactly as many coupons were issued as there are, one for each user, to the first in line;
every attempt has an answer, and the right one; accounts and rows agree; and nothing is left anywhere.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import uvloop
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_database
from tests.servers.ports import free_ports
from tests.servers.sql import SqlName

from chaos.progress import Stalled, until
from chaos.rush_audit import EACH_GETS, Verdict, audit, entries_written
from chaos.rush_process import COUPONS, POINTS, Part, Told
from chaos.servers import LosableValkey
from tidegate.core.telemetry.logs import configure_logs
from tidegate.runtime.waiting import occurs
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.campaigns import model as kinds
from tidegate.systems.campaigns.model import CampaignPlan
from tidegate.systems.campaigns.scripts import busy_key
from tidegate.systems.campaigns.service import Campaigns

_ROOT = Path(__file__).parents[1]


class RushPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and how rough."""

    attempts: int = 300_000
    users: int = 100_000
    stock: int = 10_000
    instances: int = 3
    crowds: int = 2
    """Processes that make the attempts."""
    kill_every_s: float = 1.0
    lease_s: float = 2.0
    """How soon one that died is missed."""
    database: SqlName = "postgres"
    seed: int = 1


class Rush:
    """One run."""

    def __init__(self, plan: RushPlan, url: str, database: Database, valkey: Valkey, folder: Path) -> None:
        self._plan, self._url, self._database, self._valkey, self._folder = plan, url, database, valkey, folder
        self._draw = random.Random(plan.seed)
        self._ports = free_ports(plan.instances)
        self.verdict = Verdict(attempts=plan.attempts, users=plan.users, stock=plan.stock)
        self.told: list[Told] = []

    async def run(self) -> None:
        """Wait until every attempt is answered and no entry is in line."""
        async with AsyncExitStack() as stack:
            instances = {port: await self._instance(port) for port in self._ports}
            stack.push_async_callback(_end, instances.values())
            began = time.monotonic()
            parts = [self._part(number) for number in range(self._plan.crowds)]
            crowds = [await self._start("crowd", msgspec.json.encode(part).decode()) for part in parts]
            stack.push_async_callback(_end, crowds)
            over = asyncio.Event()
            killing = asyncio.create_task(self._kill(instances, over))
            codes = [await process.wait() for process in crowds]
            self.verdict.entering_s = round(time.monotonic() - began, 1)
            over.set()
            await killing
            if any(codes):
                self.verdict.breaches.append(f"processes of clients failed: {codes}")
                return
            for part in parts:
                self.told += msgspec.msgpack.decode(Path(part.file).read_bytes(), type=list[Told])
            await self._until_quiet()

    async def _kill(self, instances: dict[int, WarmProcess], over: asyncio.Event) -> None:
        """One after the other, and one at least, while another is there: its place is taken while the next one dies."""
        starting: dict[int, asyncio.Task[None]] = {}

        async def replace(port: int) -> None:
            instances[port] = await self._instance(port)
            del starting[port]

        while not await occurs(over, within_s=self._plan.kill_every_s) or not self.verdict.killed:
            there = [port for port in self._ports if port not in starting]
            if len(there) < min(2, len(self._ports)):
                continue
            port = self._draw.choice(there)
            instances[port].kill()
            await instances[port].wait()
            self.verdict.killed += 1
            starting[port] = asyncio.create_task(replace(port))
        await asyncio.gather(*starting.values())

    async def _until_quiet(self) -> None:
        """Wait until the entries of killed processes are taken over, no entry is in line, and the consumers have
        stopped."""

        async def busy() -> int:
            return await self._valkey.execute("SCARD", busy_key(self._valkey))

        async def are_quiet() -> bool:
            return await busy() == 0

        async def reached() -> int:
            return await self._database.read(entries_written) - await busy()

        try:
            await until(are_quiet, "campaigns are quiet", reached=reached)
        except Stalled as error:
            self.verdict.breaches.append(str(error))

    async def _instance(self, port: int) -> WarmProcess:
        folder, lease_s = str(self._folder), str(self._plan.lease_s)
        return await self._start("instance", self._url, self._valkey.url, folder, lease_s, str(port))

    def _part(self, number: int) -> Part:
        plan = self._plan
        return Part(
            number=number,
            of=plan.crowds,
            attempts=plan.attempts,
            users=plan.users,
            pointed=max(1, plan.users // 20),
            seed=plan.seed,
            ports=self._ports,
            file=str(self._folder / f"told-{number}"),
        )

    async def _start(self, *arguments: str) -> WarmProcess:
        process = await start_warm(sys.executable, "-m", "chaos.rush_process", *arguments, stdout=PIPE, cwd=_ROOT)
        assert process.stdout is not None
        await process.stdout.readline()
        return process


async def conduct(plan: RushPlan, folder: Path) -> Verdict:
    """Create the servers and the campaigns, run the load, and compare the results."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LosableValkey(keeps=True))
        url = await stack.enter_async_context(migrated_database(plan.database, folder))
        valkey = await stack.enter_async_context(connected(server.url))
        database = await stack.enter_async_context(await Database.open(url))
        campaigns = Campaigns(valkey, database)
        await campaigns.create(CampaignPlan(id=COUPONS, kind=kinds.FIRST_COME, total_count=plan.stock))
        points = CampaignPlan(id=POINTS, kind=kinds.POINTS, total_count=plan.users, points=EACH_GETS)
        await campaigns.create(points)
        for campaign in (COUPONS, POINTS):
            await campaigns.start(campaign)
        rush = Rush(plan, url, database, valkey, folder)
        await rush.run()
        verdict = rush.verdict
        await audit(verdict, rush.told, database, valkey)
        verdict.attempts_per_s = round(len(rush.told) / max(verdict.entering_s, 0.1))
        verdict.took_s = round(time.monotonic() - began, 1)
        return verdict


async def _end(processes: Iterable[WarmProcess]) -> None:
    for process in processes:
        process.kill()
        await process.wait()


def main() -> int:
    """Run one campaign and print its result."""
    configure_logs("console", "error")
    parser = argparse.ArgumentParser(prog="python -m chaos.rush", description="A rush on coupons, and kill -9.")
    defaults = RushPlan()
    for name in ("attempts", "users", "stock", "instances", "crowds", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    parser.add_argument("--kill-every", type=float, dest="kill_every_s", default=defaults.kill_every_s)
    parser.add_argument("--database", choices=["sqlite", "postgres", "mariadb"], default=defaults.database)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        verdict = uvloop.run(conduct(RushPlan(**options), Path(folder)))
    told = msgspec.json.format(msgspec.json.encode(verdict)).decode()
    print(told if as_json else f"{told}\n{'every rule was kept' if verdict.is_well else 'A RULE WAS BROKEN'}")
    return 0 if verdict.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
