"""A deployment of real processes: a game, servers, `tidegate serve` and `tidegate work`; and an observer.

This process simulates the readers and the prefetch, and compares the results.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from chaos.servers import LosableValkey
from prometheus_client.parser import text_string_to_metric_families
from tests.servers.proxy import Proxy

from scenarios.client import Client
from scenarios.game import Game
from scenarios.processes import Choices, Process, start_tidegate, surroundings
from scenarios.servers import Servers, Wire, open_servers
from scenarios.stage import On, Stage
from tidegate.connections import open_context
from tidegate.core.priority import Priority
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject, unpack
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.service import Snapshots, open_snapshots
from tidegate.systems.snapshots.transports.protocol import GROUPS, topic_for

KIND = "character"
_AT_ONCE = 500
_LOOK_EVERY_S = 0.05


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment consists of."""

    servers: int = 1
    """Processes that answer."""
    workers: int = 1
    latency_ms: float = 0
    """Of the upstream's answers."""
    on_postgres: bool = False
    """Else on an SQLite file."""
    wired: frozenset[Wire] = frozenset()
    keeps: bool = False
    """Whether the Valkey server has its data when it comes back."""
    is_cluster: bool = False
    choices: dict[str, Any] = {}
    """Settings that differ from the defaults."""


class Site:
    """What scenarios do with a deployment."""

    def __init__(self, folder: Path, choices: Choices, servers: Servers, game: Game, snapshots: Snapshots) -> None:
        self._folder, self.choices = folder, choices
        self.on_servers, self.game, self.snapshots = servers, game, snapshots
        self.parts, self._numbers = snapshots.parts, count()
        self.servers: list[Process] = []
        self.workers: list[Process] = []
        self.clients: list[Client] = []
        """One for each of the servers."""

    @property
    def client(self) -> Client:
        """Of the first server."""
        return self.clients[0]

    def wire(self, wire: Wire) -> Proxy:
        """To a server of this deployment."""
        return self.on_servers.wires[wire]

    @property
    def losable(self) -> LosableValkey:
        """The Valkey server, where it is one alone."""
        assert isinstance(self.on_servers.valkey, LosableValkey)
        return self.on_servers.valkey

    async def start_server(self) -> None:
        """One more that answers."""
        process = await self._start("serve")
        self.servers.append(process)
        self.clients.append(Client(process.url))

    async def start_worker(self) -> None:
        """One more that refreshes."""
        self.workers.append(await self._start("work"))

    async def end(self) -> None:
        """Kill all processes; their files are deleted with their folder."""
        for process in (*self.servers, *self.workers):
            process.kill()
        for process in (*self.servers, *self.workers):
            await process.gone()
        for client in self.clients:
            client.close()

    async def ask(self, subjects: Iterable[int], priority: Priority) -> int:
        """Ask for refreshes as the prefetch does, many at once; how many were published."""
        reason = Reason.PREFETCH if priority is Priority.LOW else Reason.USER_REQUEST
        refresh_requests = [RefreshRequest(subject=named(each), priority=priority, reason=reason) for each in subjects]
        published = 0
        for begin in range(0, len(refresh_requests), _AT_ONCE):
            outcomes = await self.snapshots.requests.publish_many(refresh_requests[begin : begin + _AT_ONCE])
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
            published += len(outcomes)
        return published

    async def unsettled(self, *priorities: Priority) -> int:
        """Events that are not acknowledged, including those being processed."""
        if recoverable := self.snapshots.recoverable:
            names = {topic_for(each).value for each in priorities or Priority}
            return sum([(await each.status()).depth for each in recoverable if each.name in names])
        topics = [topic_for(each) for each in priorities or Priority]
        return sum([await self.snapshots.transport.lag(topic, GROUPS[topic]) for topic in topics])

    async def until_settled(self, *priorities: Priority, within_s: float) -> float:
        """Wait until all events are acknowledged; how many seconds that took."""
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(within_s):
            while True:
                if not await self.unsettled(*priorities):
                    return asyncio.get_running_loop().time() - began
                await asyncio.sleep(_LOOK_EVERY_S)

    async def row(self, subject: int) -> store.SnapshotRow | None:
        """What the database has of a subject."""
        return (await self.parts.database.read(store.get_many, [named(subject)])).get(named(subject))

    async def wrong(self, subjects: Sequence[int]) -> int:
        """How many of these are not in the database, or not what the game has."""
        wrong = 0
        for begin in range(0, len(subjects), _AT_ONCE):
            some = subjects[begin : begin + _AT_ONCE]
            rows = await self.parts.database.read(store.get_many, [named(each) for each in some])
            truths = await asyncio.gather(*(self.game.truth(each) for each in some))
            for each, truth in zip(some, truths, strict=True):
                row = rows.get(named(each))
                wrong += row is None or row.body is None or msgspec.json.decode(unpack(row.body)) != truth
        return wrong

    async def metric(self, processes: Sequence[Process], name: str, labels: Mapping[str, str] | None = None) -> float:
        """The sum of a metric over the processes."""
        found = 0.0
        for process in processes:
            with Client(process.url) as client:
                text = (await client.get("/metrics")).body.decode()
            found += sum(
                sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == name and (labels or {}).items() <= sample.labels.items()
            )
        return found

    async def _start(self, command: str) -> Process:
        name = f"{command}-{next(self._numbers)}"
        log = self._folder / f"{name}.log"
        return await start_tidegate(name, command, "--port", "0", choices=self.choices, log=log)


def named(subject: int) -> SnapshotSubject:
    """A character of the game."""
    return SnapshotSubject(KIND, str(subject))


def path_of(subject: int) -> str:
    """Where a character is read."""
    return f"/v1/snapshots/{KIND}/{subject}"


@asynccontextmanager
async def open_site(stage: Stage, shape: Shape | None = None) -> AsyncGenerator[Site]:
    """Everything is there, empty and at work, for the length of a block."""
    shape = shape or Shape()
    async with AsyncExitStack() as stack:
        stage.tell("starting servers and processes")
        servers = await stack.enter_async_context(
            open_servers(
                stage.on,
                wired=shape.wired,
                on_postgres=shape.on_postgres,
                keeps=shape.keeps,
                is_cluster=shape.is_cluster,
            )
        )
        game = await stack.enter_async_context(_game(stage, shape))
        ours: Choices = {
            "data_dir": str(stage.folder),
            "log": {"level": "warning"},
            "snapshots": {"game": {"url": game.url, "api_key": game.api_key}},
        }
        with surroundings(merged(ours, shape.choices, servers.direct)) as settings:
            parts = await stack.enter_async_context(open_context(settings))
            snapshots = await stack.enter_async_context(open_snapshots(parts))
        if stage.on is On.KAFKA:
            await snapshots.transport.create_topics()
        site = Site(stage.folder, merged(ours, shape.choices, servers.wired), servers, game, snapshots)
        stack.push_async_callback(site.end)
        await asyncio.gather(
            *(site.start_server() for _ in range(shape.servers)), *(site.start_worker() for _ in range(shape.workers))
        )
        yield site


@asynccontextmanager
async def _game(stage: Stage, shape: Shape) -> AsyncGenerator[Game]:
    """All characters exist and none changes, so that the truth is constant during a scenario."""
    world = ("--missing", "0", "--tempi", "1=never", "--body-bytes", str(stage.body_bytes))
    behaviour = ("--latency-ms", str(shape.latency_ms))
    log = stage.folder / "game.log"
    process = await start_tidegate("game", "simulate", "game", *world, *behaviour, choices={}, log=log)
    try:
        with Client(process.url) as client:
            yield Game(process, client, process.said["api_key"])
    finally:
        process.kill()
        await process.gone()


def merged(*choices: Choices) -> dict[str, Any]:
    """All of them; the later ones win."""
    result: dict[str, Any] = {}
    for each in choices:
        for name, value in each.items():
            both = isinstance(value, Mapping) and name in result
            result[name] = merged(result[name], value) if both else value
    return result
