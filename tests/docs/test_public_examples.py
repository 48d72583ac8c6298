"""Examples in the docstrings of the public API run as they are, on an embedded server and SQLite."""

import asyncio
import inspect
import re
import textwrap
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

import tidegate
from tests.servers.migrated import migrated_folder
from tidegate.connections import open_context
from tidegate.primitives.coalescer import Published, Upgraded
from tidegate.primitives.gate import CredentialLimits, Job
from tidegate.primitives.limiter import Limit, LimiterSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.sql import outbox
from tidegate.system import Context
from tidegate.systems.campaigns.model import CampaignPlan
from tidegate.systems.campaigns.system import open_campaigns
from tidegate.systems.ranking.model import RankingPeriod
from tidegate.systems.ranking.settings import Board, RankingSettings
from tidegate.systems.snapshots.model import FoundSubject, MissingSubject
from tidegate.systems.snapshots.service import open_snapshots
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.system import open_waiting_rooms

IMPORTS: Mapping[str, Any] = {
    **{name: getattr(tidegate, name) for name in tidegate.__all__},
    **{each.__name__: each for each in (AsyncGenerator, timedelta, asynccontextmanager, text, build_process)},
    **{each.__name__: each for each in (Published, Upgraded, CredentialLimits, Job, CampaignPlan, RoomPlan, Board)},
    **{each.__name__: each for each in (RankingSettings, RankingPeriod, FoundSubject, MissingSubject)},
    **{each.__name__: each for each in (open_campaigns, open_waiting_rooms, open_snapshots)},
    **{"tidegate": tidegate, "asyncio": asyncio, "msgspec": msgspec, "outbox": outbox},
}
"""What a program imports before such an example."""
ONLY_COMPILED = {"SyncLimiter", "open", "open_context"}
"""They call another site, or run until a signal."""


def example_of(name: str) -> str:
    """The block below `Example:` in the docstring of a public name; empty if there is none."""
    found = re.search(r"^Example:\n((?:    .*\n?|\n)+)", inspect.getdoc(getattr(tidegate, name)) or "", re.MULTILINE)
    return "" if found is None else textwrap.dedent(found[1])


WITH_EXAMPLE = [name for name in tidegate.__all__ if example_of(name)]


def test_functions_and_classes_of_the_public_api_have_examples():
    assert set(WITH_EXAMPLE) >= {
        *("Application", "open", "open_context", "open_database", "open_valkey", "SnapshotKind", "System", "Service"),
        *("Campaigns", "Ranking", "Snapshots", "WaitingRoom", "Limiter", "SyncLimiter", "LimiterSettings", "Gate"),
        *("CircuitBreaker", "Coalescer", "Stream", "Timers", "Database", "Transaction", "Event", "Handler"),
        *("Limit", "Rate", "Subject", "JobSpec", "Cursor", "Request", "Command", "Settings"),
    }


@pytest.mark.parametrize("name", WITH_EXAMPLE)
async def test_the_example_of_a_docstring_runs(name: str, tmp_path: Path):
    settings = Settings(data_dir=await migrated_folder(tmp_path))
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(open_context(settings))
        given = dict(IMPORTS) | _given(settings, context)
        if name == "Snapshots":
            given |= await _run("SnapshotKind", given)
        if name in ONLY_COMPILED:
            compile(_program(name), name, "exec")
        else:
            await _run(name, given)


def _program(name: str) -> str:
    return f"async def example():\n{textwrap.indent(example_of(name), '    ')}\n    return locals()"


async def _run(name: str, given: dict[str, Any]) -> dict[str, Any]:
    exec(_program(name), given)
    return await given["example"]()


def _given(settings: Settings, context: Context) -> dict[str, Any]:
    async def answer(*given: object) -> object:
        return given

    return {
        **{"settings": settings, "context": context, "valkey": context.valkey, "database": context.database},
        **{"fetch": answer, "publish": answer},
        "rules": LimiterSettings(limits=(Limit(name="second", permits=5, window=timedelta(seconds=1)),), rates=()),
    }
