"""What a source writes itself: with the end of its jobs or not at all, and never so that a job cannot end."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sqlalchemy import select, text

from tests.engine.batches import begun, claimed, finished, shelf_job, write
from tests.engine.conftest import Library
from tests.engine.shelf import ShelfSource, ShelfUpstream
from tests.waiting import look_again, patience
from tidegate.core.backoff import Backoff
from tidegate.core.telemetry.metrics import REGISTRY
from tidegate.engine import committer
from tidegate.engine.commit_batch import CommitPolicy
from tidegate.engine.job_results import from_success
from tidegate.engine.job_store import JobResult
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Reading, Task, Verdict
from tidegate.engine.tables import collection_places
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import Admitted
from tidegate.storage.sql import Database, Transaction

QUICK = CollectSettings(max_attempts=2, first_pause=timedelta(milliseconds=1), longest_pause=timedelta(milliseconds=2))

SECONDS = committer._RETRIES.first  # pyright: ignore[reportPrivateUsage]
"""How long the first pause is, where no test shortens it."""


class Stamps:
    """A writer that keeps the effects of its source in a table: an effect is a name, and `bad` ones it cannot write."""

    def __init__(self, bad: Callable[[JobResult], bool] = lambda _: False) -> None:
        self._is_bad = bad
        self.seen: list[JobResult] = []

    def write(self, tx: Transaction, endings: Sequence[JobResult]) -> None:
        self.seen.extend(endings)
        for ending in endings:
            if self._is_bad(ending):
                raise LookupError("the writer has a defect")
            rows = [{"source": effect, "address": ending.credential} for effect in ending.effects]
            tx.insert_many(collection_places, rows)


class StampedSource(ShelfSource):
    """Has an effect for every answer, of whatever kind, and no documents."""

    def read(self, task: Task, answer: Answer) -> Reading:
        reading = super().read(task, answer)
        effect = f"{task.spec.resource} {task.spec.page} {answer.status}"
        return msgspec.structs.replace(reading, documents=(), completed=(), effects=[effect])


def stamps(tx: Transaction) -> dict[str, str]:
    return {row.source: row.address for row in tx.execute(select(collection_places))}


def refused(fate: str) -> float:
    return REGISTRY.get_sample_value("collect_results_refused_total", {"fate": fate}) or 0


def stamped(local: Library, writer: Stamps, **wishes: Any) -> Library:
    """The same deployment, with effects."""
    library = Library(local.parts, local.upstream, writers={"shelves": writer}, settings=QUICK, **wishes)
    library.source.read = StampedSource().read
    return library


@pytest.mark.every_server
async def test_effects_are_written_together_with_the_end_of_their_job(database: Database):
    writer = Stamps()
    policy = CommitPolicy(writers={"shelves": writer, "others": Stamps(lambda _: True)})
    _, job_ids = await begun(database, specs=[shelf_job("novels"), shelf_job("poems")])
    late, good = await claimed(database, *job_ids)
    await claimed(database, late.job.id)

    await write(
        database,
        [finished(late, effects=["late"]), finished(good, effects=["good"], credential="librarian")],
        policy=policy,
    )

    assert await database.read(stamps) == {"good": "librarian"}
    assert [ending.claim for ending in writer.seen] == [good]


async def test_a_writer_gets_every_end_and_the_credential_of_the_call(local: Library, upstream: ShelfUpstream):
    writer = Stamps()
    library = stamped(local, writer)
    upstream.trouble["/shelves/ada-poems/0"] = [500]
    upstream.trouble["/shelves/ada-empty/0"] = [404]
    async with library.working():
        run = await library.ended()

    assert (run.succeeded_jobs, run.failed_jobs) == (run.total_jobs - 1, 1)
    seen = {(each.claim.job.spec.resource, each.state, each.reason) for each in writer.seen}
    assert ("shelf:ada-poems", JobState.READY, "status 500") in seen
    assert ("shelf:ada-poems", JobState.SUCCEEDED, "") in seen
    assert ("shelf:ada-empty", JobState.FAILED, "no such shelf") in seen
    assert {each.credential for each in writer.seen} == {"librarian"}
    written = await library.parts.database.read(stamps)
    assert {"shelf:ada-poems first 500", "shelf:ada-poems first 200", "shelf:ada-empty first 404"} <= written.keys()
    # On a slow machine a permit can end before its request is sent: that end of a job has no call.
    assert len(written) == len([each for each in writer.seen if each.calls]) == run.calls


async def test_an_unwritable_effect_does_not_block_other_effects(local: Library):
    writer = Stamps(lambda ending: any("poems first" in effect for effect in ending.effects))
    library = stamped(local, writer)
    async with library.working():
        run = await library.ended()

    assert (run.status, run.failed_jobs, run.succeeded_jobs) == (RunState.COMPLETED, 1, run.total_jobs - 1)
    (failed,) = [job for job in await library.jobs(run.id) if job.status == JobState.FAILED]
    assert (failed.resource_key, failed.attempt_count) == ("shelf:ada-poems", 2)
    assert failed.last_error == "LookupError: the writer has a defect"
    assert not [name for name in await library.parts.database.read(stamps) if "poems" in name]
    told = [each for each in writer.seen if each.claim.job.id == failed.id and each.state is JobState.FAILED]
    assert [each.effects for each in told] == [()], "the writer hears of the failure, and not again of what is bad"


async def test_a_job_ends_although_its_writer_fails_for_every_input(local: Library):
    """The end that stands for a failure fails as well: it is written without the writer, and that is counted."""
    before = refused("refused"), refused("unwritten")
    library = stamped(local, Stamps(lambda ending: "poems" in ending.claim.job.spec.resource))
    async with library.working():
        run = await library.ended()

    assert (run.status, run.failed_jobs, run.succeeded_jobs) == (RunState.COMPLETED, 1, run.total_jobs - 1)
    assert (refused("refused"), refused("unwritten")) == (before[0] + 2, before[1])


def _refuse_ends(tx: Transaction) -> None:
    """As a defect of the schema would: of one job, no end is taken."""
    tx.execute(
        text(
            "CREATE TRIGGER refusal BEFORE UPDATE ON page_jobs"
            " WHEN NEW.resource_key = 'shelf:ada-poems' AND NEW.status <> 'running'"
            " BEGIN SELECT RAISE(ABORT, 'no end is taken'); END"
        )
    )


def _take_ends(tx: Transaction) -> None:
    tx.execute(text("DROP TRIGGER refusal"))


async def until(it_is_so: Callable[[], bool]) -> None:
    async with patience():
        while not it_is_so():
            await look_again()


@pytest.fixture
def stubbornly(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = timedelta(milliseconds=5)
    monkeypatch.setattr(committer, "_RETRIES", Backoff(first=pause, most=pause))


@pytest.mark.usefixtures("stubbornly")
async def test_a_rejected_end_is_retried_within_seconds_without_another_call(local: Library, upstream: ShelfUpstream):
    assert timedelta(seconds=1) >= SECONDS
    before = refused("unwritten")
    library, database = stamped(local, Stamps()), local.parts.database
    await database.transaction(_refuse_ends)
    async with library.working():
        run_id = await library.begin()
        await until(lambda: refused("unwritten") >= before + 3)
        states = {job.resource_key: job.status for job in await library.jobs(run_id)}
        assert states["shelf:ada-poems"] == JobState.RUNNING
        assert upstream.calls["/shelves/ada-poems/0"] == 1
        await database.transaction(_take_ends)
        run = await library.until(run_id)

    assert run.succeeded_jobs == run.total_jobs, "it was READY, and then done"
    assert (upstream.calls["/shelves/ada-poems/0"], run.calls) == (2, run.total_jobs + 1)


@pytest.mark.usefixtures("stubbornly")
async def test_a_stopping_worker_leaves_a_rejected_end_to_other_workers(local: Library, upstream: ShelfUpstream):
    before = refused("unwritten")
    library, database = stamped(local, Stamps()), local.parts.database
    await database.transaction(_refuse_ends)
    async with library.working():
        run_id = await library.begin()
        await until(lambda: refused("unwritten") > before)
    await database.transaction(_take_ends)
    async with stamped(local, Stamps()).working():
        run = await library.until(run_id)

    assert (run.succeeded_jobs, upstream.calls["/shelves/ada-poems/0"]) == (run.total_jobs, 2)


@pytest.mark.usefixtures("stubbornly")
async def test_with_too_many_rejected_ends_the_next_job_goes_to_another_worker(
    local: Library, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(committer, "_MOST_UNWRITTEN", 0)
    before = refused("unwritten")
    library, database = stamped(local, Stamps()), local.parts.database
    await database.transaction(_refuse_ends)
    async with library.working():
        run_id = await library.begin()
        await until(lambda: refused("unwritten") > before)
        async with patience():
            while {job.status for job in await library.jobs(run_id)} != {JobState.RUNNING, JobState.SUCCEEDED}:
                await look_again()
            while (left := sum(each.pending for each in (await local.parts.jobs.status()).consumers)) > 1:
                await look_again()
        assert left == 1, "its message is kept by the server until it was held too long"


def test_held_results_with_effects_are_counted():
    """An effect is as large as the answer it was read from."""
    admitted = Admitted(
        message="1-0", job="1", permit="1", credential="c", bucket="core", cost=1, turned=0, payload="", deliveries=1
    )
    answer: Any = msgspec.defstruct("A", [("body", bytes), ("calls", int), ("status", int)])(b"x" * 1000, 1, 200)
    claim: Any = SimpleNamespace(job=SimpleNamespace(spec=shelf_job("novels")))
    with_effects = from_success(claim, admitted, Reading(effects=["e"] * 8), answer, datetime.now(UTC))
    without = from_success(claim, admitted, Reading(), answer, datetime.now(UTC))

    assert (with_effects.size, with_effects.weight, with_effects.needs_store) == (1000, 3, False)
    assert (without.size, without.weight) == (0, 1)
    assert with_effects.credential == "c"
    assert Reading(verdict=Verdict.RETRY).effects == ()
