"""SQS refuses all requests: the role lost its permissions, or the queue was deleted."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.engine.shelf import ShelfUpstream
from tests.engine.sqs.conftest import settings_for
from tests.engine.sqs.harness import SqsHarness
from tests.engine.sqs.partial_failures import REFUSALS, PartiallyFailingServer, picky_server
from tests.engine.sqs.test_inbox import Clockwork, plain, running, until_empty
from tests.engine.sqs.test_tasks import JOBS, SHELVES, a_process, assert_each_job_was_done_once
from tests.servers.migrated import migrated_file
from tests.servers.refusing import Lines, lines_of_outage, noise, short_pauses, told
from tests.servers.sqs import SqsServer
from tests.waiting import patience, until
from tidegate.engine.sqs.opening import open_queues
from tidegate.engine.sqs.queue import Queue
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey

pytestmark = [pytest.mark.usefixtures("logged"), pytest.mark.parametrize("refusal", REFUSALS)]


@pytest.fixture
async def server(sqs: SqsServer) -> AsyncGenerator[PartiallyFailingServer]:
    async with picky_server(sqs) as picky:
        yield picky


@pytest.fixture
async def refusable(sqs: SqsServer, url: str, server: PartiallyFailingServer) -> AsyncGenerator[Queue]:
    async with open_queues(settings_for(sqs, url, endpoint=server.endpoint)) as (_, tasks):
        assert tasks is not None
        yield tasks


@pytest.fixture
async def library(embedded: Valkey, tmp_path: Path, refusable: Queue) -> AsyncGenerator[SqsHarness]:
    async with await Database.open(await migrated_file(tmp_path / "local.db")) as database:
        yield SqsHarness(a_process(embedded, database), ShelfUpstream(dict(SHELVES)), refusable)


def lines_of_sqs(lines: Lines) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith("sqs.")]


async def test_jobs_are_sent_once_when_the_queue_accepts_them_again(
    library: SqsHarness,
    server: PartiallyFailingServer,
    sqs: SqsServer,
    url: str,
    refusal: str,
    embedded: Valkey,
    monkeypatch: pytest.MonkeyPatch,
):
    """The forwarder holds a job for longer than the time after which a held message counts as left behind."""
    short_pauses(monkeypatch)
    server.refusal = refusal
    with capture_logs() as lines:
        async with library.running(works=False):
            run_id = await library.begin()
            await library.until_names(sender=1)
            await until(lambda: server.refused["SendMessageBatch"] >= 3)
            await library.grow_old(embedded, minutes=6)

            async def is_kept() -> bool:
                return await library.oldest_ms(embedded) < 300_000

            await until(is_kept)
            await library.parts.jobs.sweep_idle()
            await library.until_names(sender=1)
            server.refusal = None
            await library.until_names(onward=1)
            await until(lambda: "server.back" in lines_of_outage(lines))
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)

    assert [error.startswith(f"SQS ({url.rpartition('/')[2]})") for error in told(lines, "server.refused")] == [True]
    assert len(lines_of_outage(lines)) <= 3
    assert lines_of_sqs(lines) == []
    assert noise(lines) == []


async def test_jobs_in_progress_finish_while_the_queue_refuses_and_the_others_follow(
    library: SqsHarness,
    server: PartiallyFailingServer,
    sqs: SqsServer,
    url: str,
    refusal: str,
    monkeypatch: pytest.MonkeyPatch,
):
    short_pauses(monkeypatch)
    answers = asyncio.get_running_loop().create_future()
    library.upstream.before_answer = lambda path: None if path.startswith("/users") else asyncio.shield(answers)
    calls = library.upstream.calls
    with capture_logs() as lines:
        async with library.running():
            run_id = await library.begin()
            await until(lambda: calls.total() == 1 + len(SHELVES))
            server.refusal = refusal
            await until(lambda: server.refused["ReceiveMessage"] >= 5)
            answers.set_result(None)

            async def are_committed() -> bool:
                return (await library.orchestrator.show(run_id)).succeeded_jobs == 1 + len(SHELVES)

            await until(are_committed)
            await until(lambda: server.refused["SendMessageBatch"] >= 3)
            assert calls.total() == 1 + len(SHELVES) < JOBS
            server.refusal = None
            await assert_each_job_was_done_once(library, run_id, sqs, url)
            await until(lambda: "server.back" in lines_of_outage(lines))

    assert len(lines_of_outage(lines)) <= 3
    assert lines_of_sqs(lines) == []
    assert noise(lines) == []


async def test_tickets_that_cannot_be_resent_are_reported_once(
    library: SqsHarness, server: PartiallyFailingServer, sqs: SqsServer, url: str, refusal: str, embedded: Valkey
):
    async with library.running(works=False):
        await library.begin()
        await library.until_names(onward=1)
    sqs.purge(url)
    server.refusal = refusal
    with capture_logs() as lines:
        for _ in range(5):
            await library.grow_old(embedded, minutes=6)
            await library.overdue_tickets.fire()
        server.refusal = None
        await library.grow_old(embedded, minutes=6)
        await library.overdue_tickets.fire()

    assert sqs.held(url) == (1, 0)
    assert lines_of_outage(lines) == ["server.refused", "server.back"]
    assert lines_of_sqs(lines) == ["sqs.tickets_sent_again"]


async def test_triggers_fire_once_when_the_queue_refused_longer_than_the_visibility_timeout(
    refusable: Queue,
    server: PartiallyFailingServer,
    sqs: SqsServer,
    url: str,
    refusal: str,
    clockwork: Clockwork,
    monkeypatch: pytest.MonkeyPatch,
):
    """Messages in hand can neither be hidden for longer nor deleted. Those that are shown again have the same key."""
    short_pauses(monkeypatch)
    clockwork.may_fire.clear()
    keys = [f"k{n}" for n in range(8)]
    sqs.put(url, *(plain(7, key) for key in keys))
    with capture_logs() as lines:
        async with running(refusable, clockwork.trigger):
            async with patience():
                await clockwork.firing.wait()
            server.refusal = refusal
            await until(lambda: server.refused["ChangeMessageVisibilityBatch"] >= 3)
            clockwork.may_fire.set()
            await until(lambda: server.refused["DeleteMessageBatch"] >= 1)
            await until(lambda: server.refused["ReceiveMessage"] >= 10)
            server.refusal = None
            await until_empty(sqs, url)
            await until(lambda: "server.back" in lines_of_outage(lines))

    assert {key for _, key in clockwork.fired} == set(keys)
    assert len(lines_of_outage(lines)) <= 3
    assert lines_of_sqs(lines) == []
    assert noise(lines) == []


@pytest.fixture
def clockwork() -> Clockwork:
    return Clockwork()
