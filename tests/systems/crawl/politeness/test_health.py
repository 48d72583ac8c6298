"""How identities stand with hosts: the copy in SQL counts as the gate does, and is written when it matters."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select

from tests.examples import examples
from tests.systems.crawl.politeness.harness import PolitenessHarness
from tidegate.engine.job_store import Claim, JobResult, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.source import JobSpec
from tidegate.primitives.gate import Admitted, Job, settlement
from tidegate.primitives.stream import Message
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.health_records import IdentityHealth, RefusalRecorded, health_of, note
from tidegate.systems.crawl.hosts import crawl_identity_health
from tidegate.systems.crawl.identity_records import credential_of

GUESS = RefusalRecorded(reason="403: refused", blocked_ms=30_000, is_guess=True)
TOLD = RefusalRecorded(reason="429: too often", blocked_ms=5_000)


def ending(
    host: str,
    *effects: RefusalRecorded,
    name: str = "tidegate",
    state: JobState = JobState.SUCCEEDED,
    calls: int = 1,
) -> JobResult:
    job = StoredJob(1, 1, "crawl", JobSpec(kind="search", resource="x", bucket=host))
    claim = Claim(job, "crawl", "ada", 1, 1, 5, None)
    credential = credential_of(name)
    admitted = Admitted(
        message="1-1",
        job="1",
        permit="1",
        credential=credential,
        bucket=host,
        cost=1,
        turned=0,
        payload="",
        deliveries=1,
    )
    return JobResult(
        claim=claim,
        state=state,
        settlement=settlement(admitted),
        calls=calls,
        effects=effects,
        credential=credential,
    )


async def noted(harness: PolitenessHarness, *endings: JobResult) -> None:
    await harness.database.transaction(note, endings)


async def scores(harness: PolitenessHarness, name: str = "tidegate") -> dict[str, float]:
    told = await harness.database.read(health_of)
    return {one.host: one.score for one in told.get(name, [])}


def refused(host: str, effect: RefusalRecorded = GUESS, *, name: str = "tidegate") -> JobResult:
    return ending(host, effect, name=name, state=JobState.READY)


@pytest.mark.every_server
async def test_a_refusal_is_recorded_and_health_recovers_with_answers_and_time(everywhere: PolitenessHarness):
    harness = everywhere
    await noted(harness, refused("shop"), ending("other"))
    assert await scores(harness) == {"shop": 0.5}
    harness.advance(timedelta(seconds=30))
    await noted(harness, ending("shop"), ending("shop"))
    healed = 0.5 + 30 / 1800 + 2 * 0.05
    assert await scores(harness) == pytest.approx({"shop": healed})
    harness.advance(timedelta(minutes=5))
    assert await scores(harness) == pytest.approx({"shop": healed + 5 / 30})
    await noted(harness, refused("shop", TOLD), refused("shop", name="spy"))
    assert await scores(harness) == pytest.approx({"shop": (healed + 5 / 30) / 2})
    ((health,),) = [one.health for one in await harness.book.list()]
    assert (health.refusals, health.last_reason) == (2, "429: too often")
    assert health.resting_until == harness.clock.now() + timedelta(seconds=5)


async def test_guessed_blocks_grow_when_they_follow_each_other(harness: PolitenessHarness):
    for seconds in (30, 60, 120):
        await noted(harness, refused("shop"))
        ((health,),) = (await harness.database.read(health_of)).values()
        assert health.resting_until == harness.clock.now() + timedelta(seconds=seconds)
        harness.advance(timedelta(seconds=seconds))
    harness.advance(timedelta(minutes=10))
    await noted(harness, refused("shop"))
    ((health,),) = (await harness.database.read(health_of)).values()
    assert health.resting_until == harness.clock.now() + timedelta(seconds=30)


@pytest.mark.every_server
async def test_a_pause_of_the_host_is_recorded_and_the_longest_one_is_kept(everywhere: PolitenessHarness):
    harness = everywhere
    await harness.book.hosts.register(harness.host)
    long, short = (RefusalRecorded(reason=f"503: for {s} s", pause_ms=s * 1000) for s in (90, 7))
    await noted(harness, *(ending(harness.host, one, state=JobState.READY) for one in (short, long, short)))
    await noted(harness, ending(harness.host, short, state=JobState.READY))
    host = await harness.stored()
    assert (host.rests_until, host.reason) == (harness.clock.now() + timedelta(seconds=90), "503: for 90 s")
    assert await scores(harness) == {}, "who is busy says nothing of the one who called"


async def test_insignificant_results_are_not_written(harness: PolitenessHarness):
    healthy = [ending("shop"), ending("shop", calls=0), ending("shop", state=JobState.READY)]
    await noted(harness, *healthy)
    assert await _count(harness) == 0
    await noted(harness, refused("shop"))
    harness.advance(timedelta(minutes=30))
    before = await _updated(harness)
    await noted(harness, *healthy)
    assert await _updated(harness) == before, "time had healed it already"


async def _count(harness: PolitenessHarness) -> int:
    def ask(tx: Transaction) -> int:
        return tx.execute(select(func.count()).select_from(crawl_identity_health)).scalar_one()

    return await harness.database.read(ask)


async def _updated(harness: PolitenessHarness) -> Sequence[object]:
    def ask(tx: Transaction) -> Sequence[object]:
        return tx.execute(select(crawl_identity_health.c.updated_at)).scalars().all()

    return await harness.database.read(ask)


async def test_a_batch_of_healthy_calls_costs_one_query(harness: PolitenessHarness):
    """However many identities made them."""
    asked: list[str] = []

    def count(tx: Transaction) -> None:
        def told(*args: object) -> None:
            asked.append(str(args[2]))

        event.listen(tx.connection, "before_cursor_execute", told)
        note(tx, [ending("shop", name=f"i{n}") for n in range(200)])
        event.remove(tx.connection, "before_cursor_execute", told)

    await harness.database.transaction(count)
    assert len(asked) == 1


@pytest.mark.every_server
async def test_concurrent_writes_about_the_same_identities_lose_nothing(everywhere: PolitenessHarness):
    names = [f"i{n}" for n in range(6)]

    async def write(turn: int) -> None:
        order = names[turn:] + names[:turn]
        await noted(everywhere, *(refused("shop", TOLD, name=name) for name in order))

    await asyncio.gather(*(write(n) for n in range(6)))
    told = await everywhere.database.read(health_of)
    assert {name: [one.refusals for one in with_hosts] for name, with_hosts in told.items()} == {n: [6] for n in names}


async def test_a_removed_identity_has_no_records(harness: PolitenessHarness):
    await harness.book.add("spy", {"User-Agent": "spy"})
    await noted(harness, refused("shop", name="spy"))
    await harness.book.remove("spy")
    assert await _count(harness) == 0
    await noted(harness, ending("shop", name="spy"))
    assert await _count(harness) == 0


_steps = st.lists(
    st.tuples(st.sampled_from([None, GUESS, TOLD]), st.sampled_from([0, 1, 5_000, 30_000, 400_000, 700_000])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_steps)
async def test_the_copy_in_sql_equals_the_state_of_the_gate(
    harness: PolitenessHarness, steps: list[tuple[RefusalRecorded | None, int]]
):
    """The same answers at the same moments, told to both."""
    await harness.parts.valkey.execute("FLUSHALL")
    await harness.parts.jobs.consumer("worker").read(1, within_s=0.001)  # which makes its group
    await harness.gate.pace("crawl", "shop", gap_ms=0)
    await harness.book.register()
    health = IdentityHealth(updated_at=harness.clock.now())
    for number, (said, pause_ms) in enumerate(steps):
        harness.advance(timedelta(milliseconds=pause_ms))
        admitted = await _let_out(harness, f"job-{number}")
        if admitted is None:  # it rests still
            continue
        now = harness.clock.now()
        if said is None:
            ended, health = settlement(admitted), health.answered(now)
        else:
            ended = settlement(admitted, blocked_ms=said.blocked_ms, is_guess=said.is_guess, rests_bucket=True)
            span = timedelta(milliseconds=said.blocked_ms or 0)
            health = health.refused(now, span, is_guess=said.is_guess)
        await harness.gate.settle([ended])
        (bucket,) = (await harness.members())["crawl:tidegate"].buckets
        assert bucket.health == pytest.approx(health.score_at(now))
        rests = timedelta(0) if health.resting_until is None else health.resting_until - now
        assert timedelta(milliseconds=bucket.rests_in_ms) == max(timedelta(0), rests)


async def _let_out(harness: PolitenessHarness, job: str) -> Admitted | None:
    await harness.gate.fire()
    await harness.gate.enqueue([Job(job=job, pool="crawl", run="1", bucket="shop")])
    messages: Sequence[Message] = await harness.parts.jobs.consumer("worker").read(1, within_s=0.001)
    if not messages:
        await harness.gate.forget([job])
        return None
    return Admitted.from_fields(messages[0].id, messages[0].fields, messages[0].deliveries)


def test_a_refusal_during_a_block_belongs_to_it_and_an_answer_during_it_proves_nothing():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = IdentityHealth(updated_at=now).refused(now, timedelta(seconds=30), is_guess=True)
    second = first.refused(now, timedelta(seconds=30), is_guess=True)
    assert (second.score, second.rests, second.resting_until) == (0.5, 1, first.resting_until)
    assert second.refusals == 2
    assert second.answered(now) == second
