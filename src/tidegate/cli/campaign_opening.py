"""What the commands about campaigns share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import typer

from tidegate.cli.running import load_settings, run
from tidegate.core.errors import InvalidArgument

if TYPE_CHECKING:
    from tidegate.app.settings import Settings
    from tidegate.systems.campaigns.campaigns import Campaigns

T = TypeVar("T")

CAMPAIGN = typer.Argument(help="The id of a campaign.")
JSON = typer.Option(False, "--json", help="Print JSON.")


def ask(question: Callable[[Campaigns], Awaitable[T]]) -> T:
    """What the campaigns of this installation answer."""
    return run(_ask(load_settings(), question))


def moment(option: str, text: str | None) -> datetime | None:
    """A time that somebody typed; raise `InvalidArgument` where it is none, or says no zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(option, text, "must be a time like 2026-12-24T12:00:00+09:00") from None
    if found.tzinfo is None:
        raise InvalidArgument(option, text, "must say its time zone")
    return found.astimezone(UTC)


async def _ask(settings: Settings, question: Callable[[Campaigns], Awaitable[T]]) -> T:
    async with _opened(settings) as campaigns:
        return await question(campaigns)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncGenerator[Campaigns]:
    from tidegate.app import open_database, open_valkey
    from tidegate.app.campaigns import open_campaigns

    async with (
        open_valkey(settings) as valkey,
        open_database(settings) as database,
        open_campaigns(settings, database, valkey) as campaigns,
    ):
        yield campaigns
