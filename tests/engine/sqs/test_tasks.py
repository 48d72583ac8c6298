"""Jobs that reach their workers by SQS: whatever the queue does, each is done, and called for once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tests.engine.sqs.harness import SqsHarness
from tests.servers.migrated import migrated_file
from tests.servers.proxy import Proxy
from tests.servers.sqs import SqsServer
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.core.errors import ValkeyUnavailable
from tidegate.engine import metrics
from tidegate.engine.sqs.forwarder import QueueIntake, write_ticket
from tidegate.engine.sqs.queue import Queue, Unsent
from tidegate.primitives.stream import Consumer
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Context

SHELVES = {f"ada-{n}": 5 for n in range(4)}
JOBS = 1 + 3 * len(SHELVES)


@pytest.fixture
def upstream() -> ShelfUpstream:
    return ShelfUpstream(dict(SHELVES))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Database]:
    async with await Database.open(await migrated_file(tmp_path / "local.db")) as opened:
        yield opened


def a_process(valkey: Valkey, database: Database) -> Context:
    return build_context(Settings(), valkey, database)


@pytest.fixture
def library(embedded: Valkey, database: Database, upstream: ShelfUpstream, queue: Queue) -> SqsHarness:
    return SqsHarness(a_process(embedded, database), upstream, queue)


async def assert_each_job_was_done_once(library: SqsHarness, run_id: int, sqs: SqsServer, url: str) -> None:
    run = await library.until(run_id)
    assert (run.total_jobs, run.succeeded_jobs) == (JOBS, JOBS)
    assert library.upstream.calls.total() == JOBS
    assert set(library.upstream.calls.values()) == {1}
    assert await library.items() == sorted(f"{shelf}-{n}" for shelf, count in SHELVES.items() for n in range(count))
    await library.until_names()
    assert (await library.calls_out(), await library.calls_lost()) == (0, 0)
    async with patience():
        while sqs.held(url) != (0, 0):  # what is void is deleted as soon as somebody sees it
            await look_again()


def tickets(outcome: str) -> float:
    return metrics.SQS_TICKETS.labels(outcome)._value.get()  # pyright: ignore[reportPrivateUsage]


async def test_a_collection_runs_completely_through_the_queue(library: SqsHarness, sqs: SqsServer, url: str):
    sent, taken = tickets("sent"), tickets("taken")
    async with library.running():
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)
    assert (tickets("sent") - sent, tickets("taken") - taken) == (JOBS, JOBS)


class ReorderingQueue(Queue):
    """Delivers everything three times, in any order."""

    async def send(self, bodies: Mapping[str, str]) -> Unsent | None:
        shuffled = [(f"{name}/{n}", body) for name, body in bodies.items() for n in range(3)]
        random.shuffle(shuffled)
        half = len(shuffled) // 2
        assert await super().send(dict(shuffled[:half])) is None
        return await super().send(dict(shuffled[half:]))


async def test_duplicated_and_reordered_messages_cause_no_repeated_call(
    library: SqsHarness, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
):
    queue.__class__ = ReorderingQueue
    another = SqsHarness(a_process(embedded, database), library.upstream, queue)
    async with library.running(), another.running():
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)


async def test_a_ticket_redelivered_while_its_job_runs_is_void(
    library: SqsHarness, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
):
    called, answered = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(path: str) -> "asyncio.Future[None] | None":
        called.set()
        return answered if path.startswith("/users") else None

    library.upstream.before_answer = hold
    async with library.running():
        run_id = await library.begin()
        await called.wait()
        [message] = library.intake.held
        sqs.put(url, write_ticket(str(library.parts.jobs.keys.stream), message))
        another = QueueIntake(queue, library.passage, "another")
        assert await another.read(10, 0.5) == []
        answered.set_result(None)
        await assert_each_job_was_done_once(library, run_id, sqs, url)
    assert await another.leave() == 0


async def test_a_ticket_of_a_dead_receiver_is_redelivered_to_another(
    library: SqsHarness, queue: Queue, sqs: SqsServer, url: str
):
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
        assert len(await queue.receive(10, 5)) == 1  # and nothing more is heard of whoever did that
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_a_worker_without_a_forwarder_is_served_by_a_forwarder_without_workers(
    library: SqsHarness, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
):
    sender = SqsHarness(a_process(embedded, database), library.upstream, queue)
    async with sender.running(works=False), library.running(forwards=False):
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)


async def test_lost_tickets_are_sent_again(library: SqsHarness, embedded: Valkey, sqs: SqsServer, url: str):
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
    sqs.purge(url)
    assert await library.overdue_tickets.fire() == pytest.approx(150_000, abs=10_000)
    assert sqs.held(url) == (0, 0)

    await library.grow_old(embedded, minutes=2.6)
    assert await library.overdue_tickets.fire() == 150_000
    assert sqs.held(url) == (1, 0)
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_a_long_queue_invalidates_no_ticket(library: SqsHarness, embedded: Valkey, sqs: SqsServer, url: str):
    """Nobody works for an hour. What waits is neither counted against its jobs, nor queued behind itself."""
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
        [ticket] = await library.grow_old(embedded, minutes=0)
        for _ in range(24):
            assert await library.grow_old(embedded, minutes=2.6) == [ticket]
            await library.overdue_tickets.fire()
            await library.parts.jobs.sweep_idle()
        assert sqs.held(url) == (1 + 5, 0)  # sent again at the 1st, 2nd, 4th, 8th and 16th look
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_during_a_queue_outage_jobs_wait_without_counted_attempts(
    embedded: Valkey,
    database: Database,
    upstream: ShelfUpstream,
    distant: Queue,
    wire: Proxy,
    sqs: SqsServer,
    url: str,
):
    library = SqsHarness(a_process(embedded, database), upstream, distant)
    await wire.refuse()
    async with library.running():
        run_id = await library.begin()
        await library.until_names(sender=1)
        await library.grow_old(embedded, minutes=6)
        async with patience():
            while await library.oldest_ms(embedded) > 300_000:  # it says that it still has them
                await look_again()
        await library.parts.jobs.sweep_idle()
        await library.until_names(sender=1)  # a leader that begins now may have swept it before that
        await wire.listen()
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_a_forwarder_continues_at_its_position_after_a_server_error(
    library: SqsHarness, sqs: SqsServer, url: str, monkeypatch: pytest.MonkeyPatch
):
    done, failures = library.passage.sent, [ValkeyUnavailable("the connection broke")] * 3

    async def fail_at_first(sender: Consumer, ids: Sequence[str]) -> None:
        if failures:
            raise failures.pop()
        await done(sender, ids)

    monkeypatch.setattr(library.passage, "sent", fail_at_first)
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_tickets_that_the_overdue_check_cannot_send_are_sent_by_the_next_check(
    embedded: Valkey,
    database: Database,
    upstream: ShelfUpstream,
    distant: Queue,
    wire: Proxy,
    sqs: SqsServer,
    url: str,
):
    library = SqsHarness(a_process(embedded, database), upstream, distant)
    async with library.running(works=False):
        await library.begin()
        await library.until_names(onward=1)
    sqs.purge(url)
    await wire.refuse()
    for _ in range(2):
        await library.grow_old(embedded, minutes=6)
        await library.overdue_tickets.fire()
        await library.parts.jobs.sweep_idle()
        assert await library.names() == {"onward": 1}
    await wire.listen()

    await library.grow_old(embedded, minutes=2.6)
    await library.overdue_tickets.fire()
    assert sqs.held(url) == (1, 0)


async def test_a_stopping_forwarder_returns_unsent_jobs(
    embedded: Valkey, database: Database, upstream: ShelfUpstream, distant: Queue, wire: Proxy
):
    library = SqsHarness(a_process(embedded, database), upstream, distant)
    await wire.refuse()
    async with library.running(works=False):
        await library.begin()
        await library.until_names(sender=1)
    assert await library.names() == {"nobody": 1}


async def test_a_worker_stopped_during_a_run_repeats_no_call(library: SqsHarness, sqs: SqsServer, url: str):
    enough = asyncio.Event()

    def count(path: str) -> None:
        if library.upstream.calls.total() >= JOBS // 2:
            enough.set()

    library.upstream.before_answer = count
    async with library.running():
        run_id = await library.begin()
        await enough.wait()
    assert "worker" not in await library.names()
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_with_the_task_queue_disabled_its_jobs_are_read_from_the_stream(
    library: SqsHarness, embedded: Valkey, database: Database, sqs: SqsServer, url: str
):
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
    await library.grow_old(embedded, minutes=6)

    plain = Library(a_process(embedded, database), library.upstream)
    async with plain.working():
        run = await plain.until(run_id)
    assert run.succeeded_jobs == JOBS
    assert set(library.upstream.calls.values()) == {1}
    assert (await library.calls_out(), await library.calls_lost()) == (0, 0)


async def test_a_message_that_is_no_ticket_is_deleted(library: SqsHarness, sqs: SqsServer, url: str):
    stream = str(library.parts.jobs.keys.stream)
    void = tickets("void")
    sqs.put(url, "no JSON", write_ticket("another", "1-1"), write_ticket(stream, f"{2**64}-0"))
    sqs.put(url, write_ticket(stream, f"{2**64 - 1}-7"))

    assert await library.intake.read(10, 0) == []
    assert await library.intake.leave() == 0

    assert sqs.held(url) == (0, 0)
    assert tickets("void") - void == 4


async def test_a_long_queue_is_read_in_larger_batches(library: SqsHarness, sqs: SqsServer, url: str):
    stopping, jobs = asyncio.Event(), library.parts.jobs
    await jobs.add([{b"job": b"%d" % n} for n in range(64)])
    forwarding = asyncio.create_task(library.forwarder.run(stopping))
    await library.until_names(onward=64)
    stopping.set()
    await forwarding

    first = await library.intake.read(35, 5)
    rest = await library.intake.read(100, 5)

    assert 10 < len(first) <= 35, "more than a receive brings, and no more than was asked for"
    assert len(first) + len(rest) == 64
    assert Counter(message.fields[b"job"] for message in first + rest) == Counter(b"%d" % n for n in range(64))
    sqs.put(url, write_ticket(str(jobs.keys.stream), first[0].id))  # the same once more
    assert await library.intake.read(10, 0.1) == []
    library.intake.settled([message.id for message in first])
    assert library.intake.held == {message.id for message in rest}
    assert await library.intake.leave() == 64
