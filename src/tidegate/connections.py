"""Connections to the two servers, and the context of a process on them.

A process that needs only one of the servers does not import the driver of the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.core.ids import new_owner
from tidegate.system import Context

if TYPE_CHECKING:
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Valkey

Preflight = Callable[[], Awaitable[None]]
_SHARD = "shard-0"
_UNLIMITED_DELIVERIES = 1_000_000
"""The worker decides when a job has been delivered too often: its permit and its row end with it."""


@asynccontextmanager
async def open_valkey(settings: Settings) -> AsyncGenerator[Valkey]:
    """The server named by the settings, else the embedded one.

    Example:
        async with open_valkey(settings) as valkey:
            limiter = Limiter(valkey, valkey.unit("weather-api"), settings=rules)
    """
    from tidegate.storage.valkey import Valkey

    async with AsyncExitStack() as stack:
        url, revive, disk = settings.valkey_url, None, None
        if url is None:
            from tidegate.core.telemetry.disks import disk_of
            from tidegate.storage.valkey.embedded import EmbeddedServer

            embedded = await stack.enter_async_context(await EmbeddedServer.start(settings.make_data_dir()))
            url, revive, disk = embedded.url, embedded.revive, disk_of(settings.data_dir)
        valkey = await Valkey.connect(url, prefix=settings.key_prefix, disk=disk)
        # Closed before the embedded server is released, which was entered first.
        stack.push_async_callback(valkey.close)
        # Commands are repeated by their callers. Meanwhile the embedded server is started again.
        if revive is not None:
            valkey.on_unavailable = revive
        yield valkey


@asynccontextmanager
async def open_database(settings: Settings, *, before_migration: Preflight | None = None) -> AsyncGenerator[Database]:
    """The database named by the settings, else our SQLite file; its schema is up to date, or it is refused.

    `before_migration` is awaited where the schema is about to be changed; what it raises prevents that.

    Example:
        async with open_database(settings) as database:
            now = await database.read(lambda tx: tx.now)
    """
    from tidegate.storage.sql import Database
    from tidegate.storage.sql.migrate import migrate, pending_migrations, require_current

    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        if not settings.migrates_at_start:
            await require_current(database)
        elif await pending_migrations(database):
            # Only where something is missing: most starts find a current schema, and take no lock.
            if before_migration is not None:
                await before_migration()
            await migrate(database)
        yield database


@asynccontextmanager
async def open_context(settings: Settings, *, before_migration: Preflight | None = None) -> AsyncGenerator[Context]:
    """Everything that a process of the deployment has open, for the length of a block. See `open_database`.

    Example:
        async with open_context(settings) as context:
            await build_process(context).run(handle_signals=True)
    """
    async with (
        open_valkey(settings) as valkey,
        open_database(settings, before_migration=before_migration) as database,
    ):
        yield build_context(settings, valkey, database)


def build_context(
    settings: Settings,
    valkey: Valkey,
    database: Database,
    *,
    shard: str = _SHARD,
    owner: str | None = None,
    part_of: str = "",
) -> Context:
    """The primitives, on connections that are open; `shard` names the unit of their keys.

    `part_of` is what metrics and dead letters of its streams are prefixed with, where a process has several contexts.
    """
    from tidegate.primitives.gate import Gate
    from tidegate.primitives.membership import Membership
    from tidegate.primitives.stream import Stream
    from tidegate.primitives.timers import Timers

    unit, owner = valkey.unit(shard), owner or new_owner()
    membership = Membership(valkey, unit, owner, settings=settings.membership)
    shown = {name: f"{part_of}.{name}" if part_of else name for name in ("jobs", "alarms", "timers")}
    unlimited = settings.stream.model_copy(update={"max_deliveries": _UNLIMITED_DELIVERIES})
    jobs = Stream(valkey, unit, "jobs", unlimited, shown_as=shown["jobs"])
    alarms = Stream(valkey, unit, "alarms", settings.stream, shown_as=shown["alarms"])
    timers = Timers(valkey, unit, alarms.keys.stream, settings=settings.timers, shown_as=shown["timers"])
    gate = Gate(
        valkey,
        unit,
        stream=jobs.keys.stream,
        group=jobs.settings.group,
        # Shared with the timers: the timekeeper waits at one wake-up for both.
        wake=timers.keys.wake,
        settings=settings.gate,
    )
    return Context(settings, owner, valkey, database, unit, membership, jobs, gate, alarms, timers)
