"""The pages, and the function that writes each."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from reference.commands import describe_commands
from reference.entities import describe_entities
from reference.events import describe_events
from reference.figures import describe_figures
from reference.operations import describe_operations
from reference.public_api import describe_api
from reference.server import openapi
from reference.tables import describe_tables
from reference.warehouse import describe_warehouse
from tidegate.settings.reference import describe_settings

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


async def _api() -> str:
    return describe_api()


async def _cli() -> str:
    return describe_commands()


async def _http() -> str:
    return describe_operations(await openapi())


async def _settings() -> str:
    return describe_settings()


async def _metrics() -> str:
    return describe_figures()


async def _events() -> str:
    return describe_events(await openapi())


async def _tables() -> str:
    return describe_tables()


async def _warehouse() -> str:
    return describe_warehouse()


async def _entities() -> str:
    return describe_entities()


PAGES: dict[str, Callable[[], Coroutine[Any, Any, str]]] = {
    "api": _api,
    "cli": _cli,
    "http": _http,
    "settings": _settings,
    "metrics": _metrics,
    "events": _events,
    "tables": _tables,
    "warehouse": _warehouse,
    "github-entities": _entities,
}
"""By the name of their file. The keys on the server have a page that people write, docs/keyspace.md."""
