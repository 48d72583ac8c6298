"""The application of a process: its context and its open systems."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy import MetaData

from tidegate.connections import open_context
from tidegate.core.errors import ContractBroken, ServerRefused
from tidegate.core.plugins import load_metrics, load_place
from tidegate.dashboard.recorder import HistoryRecorder
from tidegate.engine.preflight import check_before_migration
from tidegate.engine.system import OpenCollection
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.runtime.timekeeper import DueSource
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import create_tables, missing_tables
from tidegate.system import Context, OpenSystem, System, enabled_systems


async def create_system_tables(database: Database, systems: Sequence[System]) -> list[str]:
    """Create missing tables, and return their names."""
    return [name for system in systems for name in await create_tables(database, _tables_of(system))]


async def require_system_tables(database: Database, systems: Sequence[System]) -> None:
    """Raise `ServerRefused` if a table of a system is missing."""
    for system in systems:
        if missing := await missing_tables(database, _tables_of(system)):
            raise ServerRefused(
                database.name,
                f"tables of the system {system.name} are missing: {', '.join(missing)}",
                remedy="Run `tidegate migrate`",
            )


def _tables_of(system: System) -> MetaData:
    if not system.tables:
        return MetaData()
    metadata: MetaData = load_place(system.tables)
    # Names of different distributions must not collide, also not with tables of later versions.
    if foreign := [name for name in metadata.tables if not name.startswith(f"{system.name}_")]:
        raise ContractBroken(f"names of tables of the system {system.name} must begin with {system.name}_: {foreign}")
    return metadata


T = TypeVar("T", bound=OpenSystem)
S = TypeVar("S")


@dataclass(frozen=True)
class Application:
    """The context and the open systems of a process.

    Example:
        async with tidegate.open(settings, ["campaigns"]) as application, application.process().running():
            campaigns = application.get(Campaigns)
            await campaigns.create(CampaignPlan(id="spring", kind="FIRST_COME", total_count=1000))
    """

    context: Context
    systems: Mapping[str, OpenSystem]

    def find(self, kind: type[T]) -> T | None:
        """The open system of this class; None if it is not enabled."""
        return next((each for each in self.systems.values() if isinstance(each, kind)), None)

    def get(self, kind: type[S]) -> S:
        """Return what an open system offers to programs: `get(Campaigns)`, `get(WaitingRooms)`, `get(Collection)`.

        Raises `ContractBroken` if the system is not open or has nothing to offer, such as rankings without boards.
        """
        return self.context.get(kind)

    def process(
        self,
        *,
        works: bool = True,
        handlers: Sequence[Handler] = (),
        services: Mapping[str, Service] | None = None,
        leader_services: Mapping[str, Service] | None = None,
        due_sources: Sequence[DueSource] = (),
    ) -> Supervisor:
        """Return a process of the deployment, with workers if `works`.

        `handlers` handle events, `services` run in this process, and `leader_services` and `due_sources` run in it
        while it is the leader. They are added to those of the systems.
        """
        opened, systems = self.find(OpenCollection), list(self.systems.values())
        recorders = [] if opened is None else [HistoryRecorder(opened.collection, systems)]
        return build_process(
            self.context,
            systems,
            works=works,
            handlers=handlers,
            services=services,
            sources=[*recorders, *due_sources],
            leader_services=leader_services,
        )


@asynccontextmanager
async def open_application(settings: Settings, names: Sequence[str] | None = None) -> AsyncGenerator[Application]:
    """Open the systems `names` (default: those of the settings) and the systems they require, for a block.

    Example:
        async with tidegate.open(Settings.load()) as application:
            await application.process().run(handle_signals=True)
    """
    systems = enabled_systems(settings, names)
    for system in systems:
        load_metrics(system)
    # Settings are checked before the schema is changed: a process that cannot start must not migrate.
    check = partial(check_before_migration, settings, systems)
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(open_context(settings, before_migration=check))
        owners = [system for system in systems if system.tables]
        if settings.migrates_at_start:
            await create_system_tables(context.database, owners)
        else:
            await require_system_tables(context.database, owners)
        opened = {system.name: await stack.enter_async_context(system.open(context)) for system in systems}
        yield Application(context, opened)


open = open_application  # noqa: A001 - `tidegate.open(...)`
