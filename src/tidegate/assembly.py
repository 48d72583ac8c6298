"""Where the parts meet: settings in, a running process out."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidegate.database import Database
from tidegate.database.migrate import migrate, require_current
from tidegate.flow.doorbell import Doorbell
from tidegate.flow.gate import Gate
from tidegate.flow.presence import Election, Presence
from tidegate.flow.stream import Stream
from tidegate.flow.timers import Timers
from tidegate.kernel.ids import new_owner
from tidegate.runtime.announcer import Announcer, AttentiveRelay
from tidegate.runtime.delivery import Handler
from tidegate.runtime.heartbeat import Heartbeat
from tidegate.runtime.leadership import Leadership
from tidegate.runtime.pruner import Pruner
from tidegate.runtime.recoverer import Recoverer
from tidegate.runtime.relay import Relay
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource, Timekeeper
from tidegate.settings import Settings
from tidegate.valkey import Unit, Valkey
from tidegate.valkey.embedded import EmbeddedServer

_SHARD = "shard-0"
_NEVER_BURIED = 1_000_000
"""The worker decides when a job has killed too many of its kind: its permit and its row end with it."""


@dataclass(frozen=True)
class Parts:
    """One process's hold on the deployment: its connections, and the primitives that stand on them."""

    settings: Settings
    owner: str
    """This process's name among all processes of the deployment."""
    valkey: Valkey
    database: Database
    unit: Unit
    presence: Presence
    jobs: Stream
    """Jobs that have their permit."""
    gate: Gate
    alarms: Stream
    """Timers that have come due."""
    timers: Timers


@asynccontextmanager
async def open_valkey(settings: Settings) -> AsyncGenerator[Valkey]:
    """The server named by the settings, else the embedded one."""
    async with AsyncExitStack() as stack:
        url, revive = settings.valkey_url, None
        if url is None:
            embedded = await stack.enter_async_context(await EmbeddedServer.start(settings.make_data_dir()))
            url, revive = embedded.url, embedded.revive
        valkey = await Valkey.connect(url, prefix=settings.key_prefix)
        stack.push_async_callback(valkey.close)
        if revive is not None:
            valkey.on_unavailable = revive
        yield valkey


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncGenerator[Database]:
    """The database named by the settings, else our SQLite file; its schema is up to date, or it is refused."""
    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        await (migrate(database) if settings.migrates_at_start else require_current(database))
        yield database


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncGenerator[Parts]:
    """Everything a process of the deployment needs, for the length of a block."""
    async with open_valkey(settings) as valkey, open_database(settings) as database:
        yield put_together(settings, valkey, database)


def put_together(settings: Settings, valkey: Valkey, database: Database) -> Parts:
    """The primitives, on connections that are open."""
    unit, owner = valkey.unit(_SHARD), new_owner()
    presence = Presence(valkey, unit, owner, settings=settings.presence)
    jobs = Stream(valkey, unit, "jobs", settings.stream.model_copy(update={"max_deliveries": _NEVER_BURIED}))
    alarms = Stream(valkey, unit, "alarms", settings.stream)
    timers = Timers(valkey, unit, alarms.keys.stream, settings=settings.timers)
    gate = Gate(
        valkey,
        unit,
        stream=jobs.keys.stream,
        group=jobs.settings.group,
        wake=timers.keys.wake,
        settings=settings.gate,
    )
    return Parts(settings, owner, valkey, database, unit, presence, jobs, gate, alarms, timers)


def build_process(
    parts: Parts,
    *,
    handlers: Sequence[Handler] = (),
    services: Mapping[str, Service] | None = None,
    sources: Sequence[DueSource] = (),
    duties: Mapping[str, Service] | None = None,
    on_death: Sequence[Callable[[], object]] = (),
) -> Supervisor:
    """A process of the deployment: a sign of life, the leader's duties whenever it leads, and `services` of its own.

    Services stop before what they stand on. The leader keeps the time of timers, gate, dead processes and `sources`,
    delivers events to `handlers`, and has `duties` besides; `on_death` is called when a process died.
    """
    relay = Relay(parts.database, handlers)
    commits = Doorbell(parts.valkey, parts.unit.key("commits"))
    recoverer = Recoverer(parts.presence, [parts.jobs, parts.alarms], on_death=[relay.ring, *on_death])
    ours = [parts.timers, parts.gate, recoverer, Pruner(parts.database)]
    heartbeat = Heartbeat(parts.presence)
    leadership = Leadership(
        Election(parts.valkey, parts.unit, parts.owner),
        heartbeat,
        {
            "timekeeper": Timekeeper(parts.timers.doorbell, [*ours, *sources]),
            "relay": AttentiveRelay(relay, commits),
            **(duties or {}),
        },
    )
    supervisor = Supervisor()
    supervisor.add("heartbeat", heartbeat)
    supervisor.add("leadership", leadership)
    supervisor.add("announcer", Announcer(parts.database, commits, leads_here=lambda: leadership.fence is not None))
    for name, service in (services or {}).items():
        supervisor.add(name, service)
    return supervisor
