"""How a command follows its runs: views of progress, and the pause between two of them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.engine.conftest import LIMITS, Library
from tests.waiting import patience, until
from tidegate.engine.change_feed import RunChangeFeed
from tidegate.engine.commands import watching
from tidegate.engine.commands.watching import Watcher
from tidegate.engine.reports.progress import is_any_active
from tidegate.storage.sql import Transaction

NEVER_S = timedelta(days=1).total_seconds()


async def no_labels() -> dict[str, str]:
    return {}


async def test_the_pause_between_two_views_ends_at_once_when_all_runs_have_ended(
    local: Library, monkeypatch: pytest.MonkeyPatch
):
    checks = 0

    def count_checks(tx: Transaction, run_ids: Sequence[int]) -> bool:
        nonlocal checks
        checks += 1
        return is_any_active(tx, run_ids)

    monkeypatch.setattr(watching, "_LEAST_PAUSE_S", NEVER_S)
    monkeypatch.setattr(watching, "is_any_active", count_checks)
    run_ids = [await local.begin("ada"), await local.begin("bob")]
    change_feed = RunChangeFeed(local.parts.valkey, local.parts.unit)
    watcher = Watcher(local.parts.database, local.parts.gate, LIMITS, no_labels)
    async with change_feed.watch(run_ids) as watch:
        assert not (await watcher.read_view(run_ids)).is_over
        pausing = asyncio.create_task(watcher.pause(watch, run_ids))

        await local.orchestrator.cancel(run_ids[0])
        before = checks
        await change_feed.tell(run_ids[:1])
        await until(lambda: checks > before)  # it was checked, and one run is still active
        assert not pausing.done()

        await local.orchestrator.cancel(run_ids[1])
        await change_feed.tell(run_ids[1:])
        async with patience():
            await pausing
        assert (await watcher.read_view(run_ids)).is_over
