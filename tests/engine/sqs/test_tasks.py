"""Jobs that reach their workers by SQS: whatever the queue does, each is done, and called for once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tests.engine.sqs.library import SqsLibrary
from tests.servers.migrated import migrated_file
from tests.servers.proxy import Proxy
from tests.servers.sqs import SqsServer
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.telemetry import metrics
from tidegate.engine.sqs.intake import QueueIntake
from tidegate.engine.sqs.queue import Queue, Unsent
from tidegate.engine.sqs.tickets import write_ticket
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
def library(embedded: Valkey, database: Database, upstream: ShelfUpstream, queue: Queue) -> SqsLibrary:
    return SqsLibrary(a_process(embedded, database), upstream, queue)


async def assert_each_job_was_done_once(library: SqsLibrary, run_id: int, sqs: SqsServer, url: str) -> None:
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


async def test_a_whole_collection_goes_through_the_queue(library: SqsLibrary, sqs: SqsServer, url: str):
    sent, taken = tickets("sent"), tickets("taken")
    async with library.running():
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)
    assert (tickets("sent") - sent, tickets("taken") - taken) == (JOBS, JOBS)


class UnrulyQueue(Queue):
    """Delivers everything three times, in any order."""

    async def send(self, bodies: Mapping[str, str]) -> Unsent | None:
        shuffled = [(f"{name}/{n}", body) for name, body in bodies.items() for n in range(3)]
        random.shuffle(shuffled)
        half = len(shuffled) // 2
        assert await super().send(dict(shuffled[:half])) is None
        return await super().send(dict(shuffled[half:]))


async def test_a_queue_that_repeats_and_reorders_has_no_call_made_twice(
    library: SqsLibrary, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
):
    queue.__class__ = UnrulyQueue
    another = SqsLibrary(a_process(embedded, database), library.upstream, queue)
    async with library.running(), another.running():
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)


async def test_a_ticket_that_is_shown_again_while_its_job_is_worked_on_is_void(
    library: SqsLibrary, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
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


async def test_a_ticket_whose_receiver_died_is_shown_to_another(
    library: SqsLibrary, queue: Queue, sqs: SqsServer, url: str
):
    async with library.running(works=False):
        run_id = await library.begin()
        await library.until_names(onward=1)
        assert len(await queue.receive(10, 5)) == 1  # and nothing more is heard of whoever did that
    async with library.running():
        await assert_each_job_was_done_once(library, run_id, sqs, url)


async def test_a_process_without_a_forwarder_is_served_by_one_without_workers(
    library: SqsLibrary, embedded: Valkey, database: Database, queue: Queue, sqs: SqsServer, url: str
):
    sender = SqsLibrary(a_process(embedded, database), library.upstream, queue)
    async with sender.running(works=False), library.running(forwards=False):
        await assert_each_job_was_done_once(library, await library.begin(), sqs, url)


async def test_tickets_that_are_lost_are_sent_again(library: SqsLibrary, embedded: Valkey, sqs: SqsServer, url: str):
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


async def test_a_long_queue_makes_no_ticket_void(library: SqsLibrary, embedded: Valkey, sqs: SqsServer, url: str):
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


async def test_while_the_queue_is_away_jobs_wait_and_nothing_is_counted_against_them(
    embedded: Valkey,
    database: Database,
    upstream: ShelfUpstream,
    distant: Queue,
    wire: Proxy,
    sqs: SqsServer,
    url: str,
):
    library = SqsLibrary(a_process(embedded, database), upstream, distant)
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


async def test_a_forwarder_goes_on_where_it_was_when_the_server_failed_it(
    library: SqsLibrary, sqs: SqsServer, url: str, monkeypatch: pytest.MonkeyPatch
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


async def test_what_the_lookout_cannot_send_is_sent_the_next_time(
    embedded: Valkey,
    database: Database,
    upstream: ShelfUpstream,
    distant: Queue,
    wire: Proxy,
    sqs: SqsServer,
    url: str,
):
    library = SqsLibrary(a_process(embedded, database), upstream, distant)
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


async def test_a_forwarder_that_stops_gives_back_what_it_could_not_send(
    embedded: Valkey, database: Database, upstream: ShelfUpstream, distant: Queue, wire: Proxy
):
    library = SqsLibrary(a_process(embedded, database), upstream, distant)
    await wire.refuse()
    async with library.running(works=False):
        await library.begin()
        await library.until_names(sender=1)
    assert await library.names() == {"nobody": 1}


async def test_a_worker_that_stops_in_mid_run_has_no_call_repeated(library: SqsLibrary, sqs: SqsServer, url: str):
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


async def test_without_the_task_queue_jobs_that_were_in_it_are_read_from_the_stream(
    library: SqsLibrary, embedded: Valkey, database: Database, sqs: SqsServer, url: str
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


async def test_what_is_no_ticket_of_ours_is_thrown_away(library: SqsLibrary, sqs: SqsServer, url: str):
    stream = str(library.parts.jobs.keys.stream)
    void = tickets("void")
    sqs.put(url, "no JSON", write_ticket("another", "1-1"), write_ticket(stream, f"{2**64}-0"))
    sqs.put(url, write_ticket(stream, f"{2**64 - 1}-7"))

    assert await library.intake.read(10, 0) == []
    assert await library.intake.leave() == 0

    assert sqs.held(url) == (0, 0)
    assert tickets("void") - void == 4


async def test_more_is_read_at_once_where_there_is_plenty(library: SqsLibrary, sqs: SqsServer, url: str):
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
