"""Creates and checks the tables of systems from other distributions."""

from collections.abc import Sequence

from sqlalchemy import MetaData

from tidegate.core.errors import ContractBroken, ServerRefused
from tidegate.core.plugins import load_place
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import create_tables, missing_tables
from tidegate.system import System


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
