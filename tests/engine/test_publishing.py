"""What is committed is published: at once, or, where that fails, soon after by whoever leads."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfSource
from tests.waiting import patience
from tidegate.core.errors import ValkeyUnavailable
from tidegate.engine import runs
from tidegate.engine.job_store import StoredJob
from tidegate.engine.orchestrator import Orchestrator
from tidegate.engine.source import Subject
from tidegate.primitives.gate import Gate, scripts


class Muted(Orchestrator):
    """One whose server goes away between the commit and the offer."""

    async def offer(self, jobs: Sequence[StoredJob]) -> None:
        assert jobs, "they are committed"
        raise ValkeyUnavailable("it went away")


async def test_jobs_not_published_after_their_commit_are_published_by_the_leader(
    local: Library, monkeypatch: pytest.MonkeyPatch
):
    assert timedelta(seconds=10) >= scripts.FIRST_CHECK
    monkeypatch.setattr(scripts, "FIRST_CHECK", timedelta(milliseconds=300))
    begins = Muted(local.parts.database, local.parts.gate, {"shelves": ShelfSource()})
    async with local.working():
        await local.ended("bob")  # somebody leads, and has recovered what there was
        with pytest.raises(ValkeyUnavailable):
            await begins.begin("shelves", Subject(user_id="ada", login="ada"), pool=POOL)
        (committed,) = await local.parts.database.read(runs.active)
        run = await local.until(committed.id)

    assert (run.login, run.succeeded_jobs) == ("ada", run.total_jobs)


async def test_follow_ups_not_published_after_their_commit_are_published_later(
    local: Library, monkeypatch: pytest.MonkeyPatch
):
    """The server is away for the first three times that somebody settles: nothing is called twice, nothing is lost."""
    settle, failures = Gate.settle, iter(range(3))

    async def away(gate: Gate, *arguments: Any, **options: Any) -> Any:
        if next(failures, None) is not None:
            raise ValkeyUnavailable("it went away")
        return await settle(gate, *arguments, **options)

    monkeypatch.setattr(Gate, "settle", away)
    async with patience(), local.working():
        run = await local.ended()

    assert next(failures, None) is None, "it was away"
    assert run.calls == local.upstream.calls.total() == run.total_jobs
