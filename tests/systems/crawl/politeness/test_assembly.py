"""What the settings of an installation mean for its crawls."""

from datetime import UTC, datetime

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.systems.crawl.politeness.harness import PolitenessHarness
from tidegate.connections import build_context
from tidegate.engine.calls import Calls, NotCalled
from tidegate.engine.job_store import Claim, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import JobSpec, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import Admitted, Outcome
from tidegate.storage.documents import SqlDocuments
from tidegate.systems.crawl.plugin import CrawlPlugin
from tidegate.systems.crawl.source import NewRaw
from tidegate.systems.crawl.targets import CrawlOptions


async def test_an_unreadable_page_is_stored_at_the_last_configured_attempt(harness: PolitenessHarness):
    settings = harness.settings.model_copy(update={"collect": CollectSettings(max_attempts=2)})
    parts = build_context(settings, harness.parts.valkey, harness.database)
    source = CrawlPlugin(parts.settings).source
    target = {"site": "marketplace", "url": harness.sim.url, "product": "7", "shop": "1"}
    spec = JobSpec(kind="detail", resource=f"{harness.host}/7", params=target, bucket=harness.host)
    page = Answer(
        status=200,
        headers=CIMultiDictProxy(CIMultiDict[str]()),
        url=harness.sim.url,
        received_at=datetime(2026, 1, 1, tzinfo=UTC),
        body=b"of another layout",
        elapsed_ms=1.0,
    )

    first, last = (
        source.read(Task(spec=spec, run_id=1, user_id="daily", credential="crawl:ada", attempt=attempt), page)
        for attempt in (1, 2)
    )

    assert first.verdict is Verdict.RETRY
    assert last.verdict is Verdict.DONE
    assert [type(effect) for effect in last.effects] == [NewRaw]


async def test_a_worker_that_takes_over_does_not_call_with_the_permit_of_the_dead_worker(harness: PolitenessHarness):
    """The dead one may have called a moment ago. The gate is asked for another permit, and keeps the pause."""
    await harness.book.hosts.register(harness.host)
    with pytest.raises(NotCalled, match="was read first"):
        await harness.call()
    plugin = CrawlPlugin(harness.settings)
    async with plugin.open(harness.parts, harness.client, SqlDocuments(harness.database)) as crawl:
        assert crawl.route is not None
        calls = Calls({"crawl": plugin.source}, crawl.route, harness.clock)
    (spec,) = plugin.source.first_jobs(CrawlOptions(url=harness.sim.url, keywords=["rope"]).subject("daily"))
    claim = Claim(StoredJob(1, 1, "crawl", spec), "crawl", "daily", fence=1, attempt=1, max_attempts=5, cursor=None)
    first, second = (
        Admitted(
            message="1-0",
            job="1",
            permit="1",
            credential="crawl:tidegate",
            bucket=harness.host,
            cost=1,
            turned=0,
            payload="",
            deliveries=deliveries,
        )
        for deliveries in (1, 2)
    )
    await calls.make(claim, first)  # and dies

    taken_over = await calls.make(msgspec.structs.replace(claim, fence=2, attempt=2), second)

    assert harness.sim.report().by_route == {"robots": 1, "search": 1}
    assert (taken_over.state, taken_over.is_attempt) == (JobState.READY, False)
    assert (taken_over.settlement.outcome, taken_over.settlement.deliveries) == (Outcome.UNUSED, 2)
    poisonous = await calls.make(msgspec.structs.replace(claim, fence=6, attempt=6), second)
    assert (poisonous.state, poisonous.reason) == (
        JobState.FAILED,
        "a worker died during the last of 5 attempts",
    )
