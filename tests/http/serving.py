"""A whole process with HTTP before it and a simulated GitHub behind it; and what tests ask of it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.migrated import migrated_folder
from tests.systems.github.deployment import CALM, LIMITS, SMALL
from tests.waiting import look_again, patience
from tidegate.app.serving import serve_systems
from tidegate.connections import open_context
from tidegate.dashboard import open_dashboard
from tidegate.engine.collection import Collection
from tidegate.engine.system import OpenCollection
from tidegate.engine.upstream import UpstreamSettings
from tidegate.http import Binding
from tidegate.http.events import ListenerLimit
from tidegate.http.settings import HttpSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.system import Context, OpenSystem, find_system
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.github import GithubSettings
from tidegate.systems.github.opening import OpenGithub
from tidegate.systems.github.plugin import GithubPlugin
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

OVER = ("completed", "failed", "canceled")


@dataclass(frozen=True)
class Reply:
    """An answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def problem(self) -> str:
        """The last word of the problem's type."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        assert self.json["request_id"] == self.headers["x-request-id"]
        return self.json["type"].removeprefix("/docs#")


class Client:
    """Asks one server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url

    async def ask(self, method: str, path: str, **options: Any) -> Reply:
        async with self.session.request(method, self.url + path, allow_redirects=False, **options) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.ask("POST", path, **({} if body is None else {"json": body}), **options)

    async def events(self, path: str, **headers: str) -> AsyncIterator["Event"]:
        """Server-sent events, until the stream ends."""
        patient = aiohttp.ClientTimeout(total=60)
        async with self.session.get(self.url + path, headers=headers, timeout=patient) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for event in read_events(answer):
                yield event

    async def when_available(self, path: str, **options: Any) -> Reply:
        """The first answer other than 503, which a starved process gives when a check of its servers takes too long."""
        async with patience():
            while (answer := await self.get(path, **options)).status == 503:
                await look_again()
        return answer

    async def until(self, path: str, is_so: Callable[[Any], bool]) -> dict[str, Any]:
        """What is told there, as soon as it is so."""
        async with patience():
            while not is_so(told := (await self.get(path)).json):
                await look_again()
        return told

    async def until_over(self, run_id: int) -> dict[str, Any]:
        """The run, when it has ended."""
        async with patience():
            async for event in self.events(f"/v1/runs/{run_id}/events"):
                if event.kind == "ended":
                    return event.data
        raise AssertionError("the stream ended before the run")


async def figures(client: Client) -> dict[str, float]:
    """Every sample of /metrics, by its name and labels as they are written."""
    answer = await client.get("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


@dataclass(frozen=True)
class Event:
    """One of them; a comment has no kind."""

    kind: str
    id: str = ""
    data: Any = None


async def read_events(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Events as they come, comments too."""
    fields = dict[str, str]()
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name or ":"] = value
        elif fields:
            if "data" in fields:
                yield Event(fields["event"], fields["id"], msgspec.json.decode(fields["data"]))
            elif "" in fields or ":" in fields:
                yield Event("")
            fields = {}


@dataclass(frozen=True)
class Served:
    """The server, what it serves, and the GitHub behind it."""

    client: Client
    collection: Collection
    sim: GithubSimulator
    stop: Callable[[], None]

    @property
    def logins(self) -> list[str]:
        return self.sim.world.logins()

    async def collect(self, login: str, **options: Any) -> dict[str, Any]:
        """Begin a run and wait for its end."""
        begun = await self.client.post("/v1/runs", {"login": login, **options})
        assert begun.status == 201, begun
        return await self.client.until_over(begun.json["id"])


@asynccontextmanager
async def served(
    folder: Path,
    *,
    http: HttpSettings | None = None,
    users: int = 2,
    repositories: int = 1,
    limits: LimitSettings | None = None,
    behaviour: Behaviour = CALM,
    has_token: bool = True,
    works: bool = True,
    headers: Mapping[str, str] | None = None,
    valkey_url: str | None = None,
    database_url: str | None = None,
    crawl: CrawlSettings | None = None,
    dashboard: bool = False,
) -> AsyncGenerator[Served]:
    """A process that is at work, on embedded parts of its own, with the token of the simulator's operator or none."""
    world = WorldShape(users=users, repositories=repositories, sizes=SMALL, events=20, quirks=False)
    config = SimulatorConfig(world=world, limits=limits or LimitSettings(), behaviour=behaviour)
    http = (http or HttpSettings()).model_copy(update={"port": 0})
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(GithubSimulator(config))
        settings = Settings(
            data_dir=await migrated_folder(folder),
            valkey_url=valkey_url,
            database_url=database_url,
            auto_migrate=True,
            github=GithubSettings(api_url=sim.url),
            gate=LIMITS,
            upstream=UpstreamSettings(read_timeout=timedelta(seconds=5), private_hosts=("127.0.0.1",)),
            http=http,
            crawl=crawl or CrawlSettings(),
        )
        given = sim.token_of(sim.world.operators()[0]) if has_token else None
        systems = await open_systems(stack, settings, token=given)
        collection = systems[0].collection
        binding = stack.enter_context(Binding(http))
        stop = await stack.enter_async_context(running(systems, http, binding, works=works, dashboard=dashboard))
        session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
        yield Served(Client(session, binding.url), collection, sim, stop)


@asynccontextmanager
async def running(
    systems: "Systems", http: HttpSettings, binding: Binding, *, works: bool, dashboard: bool = False
) -> AsyncGenerator[Callable[[], None]]:
    """The process, from start to an orderly stop, which may be asked for before the end of the block."""
    parts = systems[0].collection.parts
    async with AsyncExitStack() as stack:
        others = [find_system(name).open(parts) for name in ("campaigns", "ranking", "snapshots", "waiting_room")]
        opened = [*systems, *[await stack.enter_async_context(each) for each in others]]
        yield await stack.enter_async_context(_running(parts, opened, http, binding, works=works, dashboard=dashboard))


Systems = tuple[OpenCollection, OpenGithub, OpenSystem]


async def open_systems(stack: AsyncExitStack, settings: Settings, *, token: str | None = None) -> Systems:
    """Collection, GitHub and the crawl, as an application opens them, but with a token of the test."""
    context = await stack.enter_async_context(open_context(settings))
    opened = await stack.enter_async_context(find_system("collection").open(context))
    assert isinstance(opened, OpenCollection)
    cell = await stack.enter_async_context(opened.collection.open_source(GithubPlugin(settings), token=token))
    return opened, OpenGithub(cell), await stack.enter_async_context(find_system("crawl").open(context))


@asynccontextmanager
async def _running(
    parts: Context, systems: list[OpenSystem], http: HttpSettings, binding: Binding, *, works: bool, dashboard: bool
) -> AsyncGenerator[Callable[[], None]]:
    seats = ListenerLimit(http.most_listeners)
    further = open_dashboard(systems, seats) if dashboard else None
    service = serve_systems(
        parts, systems, binding, settings=http, seats=seats, further=None if further is None else further.api()
    )
    services = {"http": service} if further is None else {"http": service, "dashboard": further}
    process = build_process(parts, systems[:3], works=works, services=services)
    task = asyncio.create_task(process.run())
    asked = asyncio.Event()

    def stop() -> None:
        if not asked.is_set():  # asked twice, it would hurry
            asked.set()
            process.stop()

    try:
        yield stop
    finally:
        stop()
        report = await task
    assert report.is_clean, report
