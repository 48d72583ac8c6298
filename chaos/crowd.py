"""A crowd, and kill -9: `python -m chaos.crowd [--people N] [--database ...] [--losses N] [--seed S] [--json]`.

All visitors join, are admitted and leave, while the admitting leader is killed or frozen again and again, the
database is away at times, also in the very moment of a commit, and Valkey is killed and started again. With
`--losses` it also loses all data: then all visitors present their passes, and have their old places again. At the end
the room's
log is read step by step, and its rows as a whole. The exit code is 0 if the capacity was never exceeded, no visitor
was overtaken in the whole history, lost or admitted twice, each has one token, and the room is empty by the work of the
leaders, also after a last blow.
"""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec
import uvloop
from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_database
from tests.servers.proxy import Proxy
from tests.servers.sql import SqlName, sql_server

from chaos.crowd_audit import Replay, Verdict, audit, steps_made
from chaos.crowd_process import ROOM, SETTINGS, UNIT, open_signer
from chaos.progress import Stalled, until
from chaos.servers import LosableValkey
from tidegate.core.errors import Unavailable, ValkeyUnavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import MembershipKeys
from tidegate.runtime.waiting import occurs
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import RoomPlan, WaitingRoom, WaitingRooms
from tidegate.systems.waiting_room.model import UnknownRoom

_ROOT = Path(__file__).parents[1]
_FROZEN_S = 3.0
_INSTALL_S = 10.0
"""The longest wait for the room to be installed before the next fault; a fault may occur during an installation."""
_MOST_UNWRITTEN = 100_000
"""Bytes: some hundred steps of the room."""


class CrowdPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How large, and how rough."""

    people: int = 50_000
    joiners: int = 4
    admitters: int = 3
    capacity: int = 600
    leaving: float = 0.2
    """How many leave by themselves; the others stay until their time is over."""
    database: SqlName = "postgres"
    kill_every_s: float = 0.7
    freezes: float = 0.2
    """The share of blows in which a process is frozen instead of killed."""
    fail_every_s: float = 3.0
    fail_for_s: float = 0.4
    valkey_every_s: float = 8.0
    """Interval between kills of Valkey; it restarts with its data."""
    power_failures: float = 0.0
    """How often the last that it has written is lost in this."""
    losses: int = 0
    """How many of these restarts lose all data."""
    seed: int = 1


class Campaign:
    """One run."""

    def __init__(
        self,
        plan: CrowdPlan,
        database: Database,
        url: str,
        server: LosableValkey,
        valkey: Valkey,
        *,
        room: WaitingRoom,
        wire: Proxy | None,
    ) -> None:
        self._plan, self._database, self._url, self._server = plan, database, url, server
        self._valkey, self._room, self._wire = valkey, room, wire
        self._draw, self._over, self._admitters = random.Random(plan.seed), asyncio.Event(), 0
        self.verdict = Verdict(capacity=plan.capacity, people=plan.people)
        self.replay = Replay(self.verdict)

    async def run(self) -> None:
        """Wait until all visitors have been admitted and have left."""
        async with AsyncExitStack() as stack:
            admitters: dict[str, WarmProcess] = {}
            stack.push_async_callback(_end, admitters)
            for _ in range(self._plan.admitters):
                admitters |= await self._new_admitter()
            each = self._plan.people // self._plan.joiners
            crowd = {
                f"p{n}": await self._start("crowd", f"p{n}", str(each), str(self._plan.leaving))
                for n in range(self._plan.joiners)
            }
            stack.push_async_callback(_end, crowd)
            trouble = [
                asyncio.create_task(makes) for makes in (self._kill(admitters), self._fail(), self._lose_valkey())
            ]
            with self._told_if_stalled():
                await self._until_gone(list(crowd.values()))
            self._over.set()
            await asyncio.gather(*trouble)
            await self._strike_last()
            with self._told_if_stalled():
                await self._until_empty()

    @contextmanager
    def _told_if_stalled(self) -> Generator[None]:
        try:
            yield
        except Stalled as error:
            self.verdict.breaches.append(str(error))

    async def _until_gone(self, crowd: list[WarmProcess]) -> None:
        """Wait until all visitors have been admitted and have left, while there is progress."""

        async def is_over() -> bool:
            return all(process.returncode is not None for process in crowd)

        async def reached() -> int:
            return await self._database.read(steps_made, ROOM)

        await until(is_over, f"{self._plan.people} people come in and go, each a step", reached=reached)
        if any(codes := [process.returncode for process in crowd]):
            self.verdict.breaches.append(f"processes of visitors failed: {codes}")

    async def _strike_last(self) -> None:
        """All visitors have left, so no request reports a problem: the leader must end the remaining sessions
        itself."""
        if self._wire is not None:
            await self._wire.refuse()
            await self._wire.listen()
        # After a power failure the server may list admitted visitors as waiting.
        await self._restart_valkey(_MOST_UNWRITTEN // 2 if self._plan.power_failures else 0)

    async def _until_empty(self) -> None:
        """Wait until no visitor is in line, being admitted or inside."""

        async def people() -> int:
            try:
                counts = await self._room.line.counts()  # it installs nothing: that is for others to do
            except UnknownRoom as error:
                raise ValkeyUnavailable("the room is not installed yet") from error
            return counts.waiting + counts.entering + counts.active

        async def is_empty() -> bool:
            return await people() == 0

        async def reached() -> int:
            return -await people()

        await until(is_empty, "the room is empty after the last blow", reached=reached)

    async def _installed(self) -> None:
        """Wait for the installation: a server that fails more often than the room can be installed admits no
        visitor."""

        async def is_installed() -> bool:
            facts = await self._valkey.execute("INFO", "server")
            return await self._valkey.execute("HGET", self._room.line.keys["book"], "run") == facts["run_id"].encode()

        with suppress(Stalled):
            await until(is_installed, "it is there", reached=lambda: asyncio.sleep(0, 0), still_s=_INSTALL_S)

    async def _kill(self, admitters: dict[str, WarmProcess]) -> None:
        while not await self._is_over_within(self._plan.kill_every_s):
            await self._installed()
            leader = await self._leader()
            owner = leader if leader in admitters else self._draw.choice(list(admitters))
            self.verdict.leaders_hit += leader == owner
            if self._draw.random() < self._plan.freezes:
                # Until its lease ended and another process leads; then it continues.
                victim = admitters[owner]
                victim.send_signal(signal.SIGSTOP)
                asyncio.get_running_loop().call_later(_FROZEN_S, victim.send_signal, signal.SIGCONT)
                self.verdict.frozen += 1
                continue
            victim = admitters.pop(owner)
            victim.kill()
            await victim.wait()
            admitters |= await self._new_admitter()
            self.verdict.killed += 1

    async def _leader(self) -> str:
        """The owner that leads, as far as it is known."""
        with suppress(Unavailable):
            owner = await self._valkey.execute("HGET", MembershipKeys(self._valkey.unit(UNIT)).leader, "owner")
            return "" if owner is None else owner.decode()
        return ""

    async def _new_admitter(self) -> dict[str, WarmProcess]:
        self._admitters += 1
        owner = f"admitter-{self._admitters}"
        return {owner: await self._start("admit", owner)}

    async def _fail(self) -> None:
        while self._wire is not None and not await self._is_over_within(self._plan.fail_every_s):
            self._wire.cut_after(b"COMMIT;" if self._plan.database == "postgres" else b"COMMIT")
            await asyncio.sleep(self._plan.fail_for_s)
            await self._wire.refuse()
            await asyncio.sleep(self._plan.fail_for_s)
            await self._wire.listen()
            self.verdict.failures += 1

    async def _lose_valkey(self) -> None:
        while not await self._is_over_within(self._plan.valkey_every_s):
            await self._installed()
            if self.verdict.valkey_lost < self._plan.losses:
                self.replay.read(self._server.take_log(self._room.line.keys["log"]))
                self.replay.lost()
                self.verdict.valkey_lost += 1
            else:
                is_power_failure = self._draw.random() < self._plan.power_failures
                await self._restart_valkey(self._draw.randrange(1, _MOST_UNWRITTEN) if is_power_failure else 0)

    async def _restart_valkey(self, unwritten: int) -> None:
        """Kill Valkey and start it again, after a power failure without the last bytes that it wrote.

        The log is read before. Its end is lost with the bytes, and also without a power failure, since Valkey answers
        before it writes while an fsync takes long; and a visitor whose join is lost may have been admitted.
        """
        ending = await asyncio.to_thread(self._server.last_entries, self._room.line.keys["log"], self.replay.last_read)
        self.replay.read_presence(ending)
        if unwritten:
            await asyncio.to_thread(self._server.restart_without_the_last, unwritten)
            self.verdict.power_failures += 1
        else:
            await asyncio.to_thread(self._server.restart)
            self.verdict.valkey_killed += 1

    async def _is_over_within(self, about_s: float) -> bool:
        return await occurs(self._over, within_s=about_s * (0.5 + self._draw.random()))

    async def _start(self, part: str, *rest: str) -> WarmProcess:
        command = (sys.executable, "-m", "chaos.crowd_process", part, self._url, self._server.url, *rest)
        process = await start_warm(*command, stdout=PIPE, cwd=_ROOT)
        assert process.stdout is not None
        await process.stdout.readline()
        return process


async def conduct(plan: CrowdPlan, folder: Path) -> Verdict:
    """Create the servers and the room, run the campaign, and read the results."""
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LosableValkey(keeps=True))
        url, wire = await stack.enter_async_context(_database(plan.database, folder))
        valkey = await stack.enter_async_context(connected(server.url))
        database = await stack.enter_async_context(await Database.open(url))
        rooms = WaitingRooms(valkey, database, open_signer, SETTINGS)
        day, brief = timedelta(days=1), timedelta(seconds=1)
        await rooms.create(
            ROOM,
            RoomPlan(
                capacity=plan.capacity,
                session=brief,
                longest_session=day,
                abandon_after=day,
                log_length=100_000_000,
            ),
        )
        room = await rooms.open(ROOM)
        campaign = Campaign(plan, database, url, server, valkey, room=room, wire=wire)
        await campaign.run()
        async with connected(server.url) as present:  # the first one may not know yet that the server was away
            await audit(campaign.verdict, campaign.replay, room, present, database)
        campaign.verdict.took_s = round(time.monotonic() - began, 1)
        return campaign.verdict


@asynccontextmanager
async def _database(name: SqlName, folder: Path) -> AsyncGenerator[tuple[str, Proxy | None]]:
    """A database, behind a wire that can be cut where it is a server."""
    async with migrated_database(name, folder) as url:
        if name == "sqlite":
            yield url, None
            return
        port = sql_server(name).port
        async with Proxy(port) as wire:
            yield url.replace(f":{port}/", f":{wire.port}/"), wire


async def _end(processes: dict[str, WarmProcess]) -> None:
    for process in processes.values():
        process.kill()
        await process.wait()


def main() -> int:
    """Run one campaign and print its result."""
    configure_logs("console", "error")
    parser = argparse.ArgumentParser(prog="python -m chaos.crowd", description="A crowd, and kill -9.")
    defaults = CrowdPlan()
    for name in ("people", "joiners", "admitters", "capacity", "losses", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name))
    for name in ("kill", "fail", "valkey"):  # on a machine that is busy with other things, less often
        every = f"{name}_every_s"
        parser.add_argument(
            f"--{name}-every", type=float, dest=every, default=getattr(defaults, every), metavar="SECONDS"
        )
    parser.add_argument("--freezes", type=float, default=defaults.freezes, metavar="SHARE")
    parser.add_argument("--power-failures", type=float, default=defaults.power_failures, metavar="SHARE")
    parser.add_argument("--database", choices=["sqlite", "postgres", "mariadb"], default=defaults.database)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args())
    as_json = options.pop("json")
    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as folder:
        verdict = uvloop.run(conduct(CrowdPlan(**options), Path(folder)))
    told = msgspec.json.format(msgspec.json.encode(verdict)).decode()
    print(told if as_json else f"{told}\n{'every rule was kept' if verdict.is_well else 'A RULE WAS BROKEN'}")
    return 0 if verdict.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
