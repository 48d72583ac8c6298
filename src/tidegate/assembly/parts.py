"""One process's hold on the deployment: its connections, and the primitives that stand on them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidegate.database import Database
from tidegate.database.migrate import migrate, pending_migrations, require_current
from tidegate.flow.doorbell import Doorbell
from tidegate.flow.gate import Gate
from tidegate.flow.presence import Presence
from tidegate.flow.stream import Stream
from tidegate.flow.timers import Timers
from tidegate.kernel.ids import new_owner
from tidegate.settings import Settings
from tidegate.telemetry.disks import disk_of
from tidegate.valkey import Unit, Valkey
from tidegate.valkey.embedded import EmbeddedServer

Preflight = Callable[[], Awaitable[None]]
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

    @property
    def commits(self) -> Doorbell:
        """Where the leader hears that somebody committed events."""
        return Doorbell(self.valkey, self.unit.key("commits"))


@asynccontextmanager
async def open_valkey(settings: Settings) -> AsyncGenerator[Valkey]:
    """The server named by the settings, else the embedded one."""
    async with AsyncExitStack() as stack:
        url, revive, disk = settings.valkey_url, None, None
        if url is None:
            embedded = await stack.enter_async_context(await EmbeddedServer.start(settings.make_data_dir()))
            url, revive, disk = embedded.url, embedded.revive, disk_of(settings.data_dir)
        valkey = await Valkey.connect(url, prefix=settings.key_prefix, disk=disk)
        stack.push_async_callback(valkey.close)
        if revive is not None:
            valkey.on_unavailable = revive
        yield valkey


@asynccontextmanager
async def open_database(settings: Settings, *, before_migration: Preflight | None = None) -> AsyncGenerator[Database]:
    """The database named by the settings, else our SQLite file; its schema is up to date, or it is refused.

    `before_migration` is awaited where the schema is about to be changed; what it raises prevents that.
    """
    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        if not settings.migrates_at_start:
            await require_current(database)
        elif await pending_migrations(database):
            if before_migration is not None:
                await before_migration()
            await migrate(database)
        yield database


@asynccontextmanager
async def open_parts(settings: Settings, *, before_migration: Preflight | None = None) -> AsyncGenerator[Parts]:
    """Everything a process of the deployment needs, for the length of a block. See `open_database`."""
    async with (
        open_valkey(settings) as valkey,
        open_database(settings, before_migration=before_migration) as database,
    ):
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
