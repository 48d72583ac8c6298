"""The application of a process: its context and its open systems."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tidegate.app.tables import create_system_tables, require_system_tables
from tidegate.connections import open_context
from tidegate.engine.preflight import check_before_migration
from tidegate.process import build_process
from tidegate.runtime.service import Service
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.system import Context, OpenSystem, enabled_systems

T = TypeVar("T", bound=OpenSystem)


@dataclass(frozen=True)
class Application:
    """The context and the open systems of a process.

    Example:
        async with tidegate.open(settings, ["campaigns"]) as application:
            campaigns = application.systems["campaigns"].campaigns
            process = application.process(works=False)
    """

    context: Context
    systems: Mapping[str, OpenSystem]

    def find(self, kind: type[T]) -> T | None:
        """The open system of this class; None if it is not enabled."""
        return next((each for each in self.systems.values() if isinstance(each, kind)), None)

    def process(self, *, works: bool = True, services: Mapping[str, Service] | None = None) -> Supervisor:
        """The supervisor of a process with further `services`, and with workers if `works`."""
        return build_process(self.context, list(self.systems.values()), works=works, services=services)


@asynccontextmanager
async def open_application(settings: Settings, names: Sequence[str] | None = None) -> AsyncGenerator[Application]:
    """Open the systems `names` (default: those of the settings) and the systems they require, for a block.

    Example:
        async with tidegate.open(Settings.load()) as application:
            await application.process().run(handle_signals=True)
    """
    systems = enabled_systems(settings, names)
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
