"""What operators ask, on every database: each answer, and what it leaves out."""

from datetime import timedelta

import pytest

from tests.engine.busy_day import fill
from tidegate.core.errors import InvalidArgument
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.kinds import failing_kinds, processing_times, retry_counts
from tidegate.engine.reports.states import jobs_by_state, queues, runs_by_state, slow_jobs
from tidegate.storage.sql import Database

DAY = timedelta(days=1)


@pytest.mark.every_server
async def test_every_question_is_answered_from_existing_data(database: Database):
    await database.transaction(fill)
    since = database.clock.now() - DAY

    runs = await database.read(runs_by_state)
    assert [(one.state, one.runs) for one in runs.states] == [
        *(("planning", 1), ("running", 1), ("completed", 3), ("failed", 1), ("canceled", 1)),
    ]
    assert (runs.states[2].first, runs.states[2].last) == (1, 3)
    lately = await database.read(runs_by_state, since)
    assert {one.state: one.runs for one in lately.states}[RunState.COMPLETED] == 2

    jobs = await database.read(jobs_by_state)
    assert jobs.runs == 2
    assert [(one.source, one.state, one.jobs) for one in jobs.states] == [
        *(("crawl", "enqueued", 4), ("crawl", "running", 1)),
        *(("github", "ready", 3), ("github", "enqueued", 25), ("github", "running", 3), ("github", "succeeded", 1)),
    ]

    failing = await database.read(failing_kinds, since)
    assert [(one.kind, one.failed, one.jobs, one.share, one.runs, one.last_error) for one in failing.kinds] == [
        ("detail", 3, 23, 0.1304, 1, "the page has no price"),
        ("REPO_COMMITS", 2, 45, 0.0444, 1, "502 Bad Gateway"),
        ("option", 1, 1, 1.0, 1, "503 Service Unavailable"),
        ("USER_BASIC", 1, 3, 0.3333, 1, "404"),
    ]
    assert (failing.looked_at.runs, failing.looked_at.jobs, failing.looked_at.is_whole) == (6, 73, True)

    times = {one.kind: one for one in (await database.read(processing_times, since)).kinds}
    commits = times["REPO_COMMITS"]
    assert (commits.jobs, commits.p50_s, commits.p95_s, commits.max_s) == (45, 0.32, 1.8, 11.0)
    assert [*times] == ["option", "detail", "REPO_COMMITS", "REPO_ISSUES", "USER_BASIC"]

    retries = {one.kind: one for one in (await database.read(retry_counts, since)).kinds}
    told = {kind: (one.jobs, one.retried, one.retries, one.most) for kind, one in retries.items()}
    assert told["REPO_COMMITS"] == (45, 5, 11, 5)
    assert told["REPO_REVIEWS"] == (4, 3, 3, 2)
    assert told["mini_shop"] == (1, 1, 1, 2)
    assert [*told][:2] == ["REPO_COMMITS", "detail"]


@pytest.mark.every_server
async def test_long_running_and_waiting_jobs_are_found(database: Database):
    await database.transaction(fill)

    slow = await database.read(slow_jobs, timedelta(minutes=10))
    assert (slow.running, slow.too_long) == (4, 2)
    assert [(job.login, job.kind, round(job.seconds / 60)) for job in slow.jobs] == [
        ("hourly", "mini_shop", 120),
        ("hubot", "REPO_REVIEWS", 47),
    ]
    assert len((await database.read(slow_jobs, timedelta(0), 3)).jobs) == 3

    github, crawl = await database.read(queues)
    assert (github.pool, github.runs, github.waiting, github.retrying) == ("github", 1, 25, 3)
    assert [one.credential for one in github.rests] == ["mona"]
    assert github.next_retry_at is not None
    assert timedelta(seconds=30) < github.next_retry_at - database.clock.now() <= timedelta(minutes=1)
    assert (crawl.pool, crawl.waiting, crawl.retrying, crawl.next_retry_at, crawl.rests) == ("crawl", 4, 0, None, [])
    assert [one.pool for one in await database.read(queues, 1)] == ["github"]


async def test_no_more_jobs_are_read_than_requested(database: Database):
    await database.transaction(fill)
    since = database.clock.now() - DAY

    times = await database.read(processing_times, since, 20, 10)

    # What is under way comes first, and then what ended last: the 47 jobs of mona's run, of which 10 are looked at.
    assert (times.looked_at.runs, times.looked_at.jobs, times.looked_at.is_whole) == (3, 10, False)
    assert sum(one.jobs for one in times.kinds) == 10
    for report in (failing_kinds, processing_times, retry_counts):
        with pytest.raises(InvalidArgument, match="most_jobs"):
            await database.read(report, since, 20, 0)
        with pytest.raises(InvalidArgument, match="limit"):
            await database.read(report, since, 0)
        assert len((await database.read(report, since, 1)).kinds) == 1


@pytest.mark.every_server
async def test_an_empty_deployment_has_empty_reports(database: Database):
    since = database.clock.now() - DAY

    assert (await database.read(runs_by_state)).states == []
    assert (await database.read(jobs_by_state)).states == []
    assert (await database.read(slow_jobs, timedelta(0))).jobs == []
    assert await database.read(queues) == []
    for report in (failing_kinds, processing_times, retry_counts):
        found = await database.read(report, since)
        assert (found.kinds, found.looked_at.runs, found.looked_at.is_whole) == ([], 0, True)
