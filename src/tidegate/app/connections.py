"""Connections to the two servers. A process that needs one of them does not import the driver of the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.app.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Valkey

Preflight = Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_valkey(settings: Settings) -> AsyncGenerator[Valkey]:
    """The server named by the settings, else the embedded one."""
    from tidegate.storage.valkey import Valkey

    async with AsyncExitStack() as stack:
        url, revive, disk = settings.valkey_url, None, None
        if url is None:
            from tidegate.core.telemetry.disks import disk_of
            from tidegate.storage.valkey.embedded import EmbeddedServer

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
    from tidegate.storage.sql import Database
    from tidegate.storage.sql.migrate import migrate, pending_migrations, require_current

    settings.make_data_dir()
    async with await Database.open(settings.effective_database_url) as database:
        if not settings.migrates_at_start:
            await require_current(database)
        elif await pending_migrations(database):
            if before_migration is not None:
                await before_migration()
            await migrate(database)
        yield database
