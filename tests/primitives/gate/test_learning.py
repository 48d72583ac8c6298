"""A refusal teaches: less at once and less in a minute, and a little more after each step of time."""

from collections.abc import Sequence

import msgspec

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs
from tidegate.primitives.gate import Admitted, CredentialLimits, CredentialRecord, LearnedLimits, PoolRecord, settlement

REST_MS, STEP_MS = 10_000, 60_000
LIMITS = PLENTY.model_copy(update={"concurrency": 50, "per_minute": 8_000})


async def opened(harness: GateHarness, limits: CredentialLimits = LIMITS) -> list[Admitted]:
    """A credential with all the calls under way that it may have."""
    await harness.register(limits=limits)
    await harness.set_allowance(limit=100_000)
    await harness.gate.enqueue(jobs(3_000))
    return await harness.admitted()


async def refuse(harness: GateHarness, admitted: Sequence[Admitted]) -> list[LearnedLimits | None]:
    """The upstream refuses these calls, one after the other: what the credential learned each time."""
    lessons: list[LearnedLimits | None] = []
    for one in admitted:
        said = settlement(one, blocked_ms=REST_MS)
        lessons.append((await harness.gate.report(said)).learned)
        await harness.settle([msgspec.structs.replace(said, is_reported=True)], follow_ups=[job(one.job)])
    return lessons


async def answer(harness: GateHarness, admitted: Sequence[Admitted]) -> list[Admitted]:
    """The upstream answers: what is let out by that."""
    for one in admitted:
        await harness.settle([harness.answered(one, 100_000, 99_000)])
    return await harness.admitted()


async def later(harness: GateHarness, **span: float) -> list[Admitted]:
    harness.advance(**span)
    await harness.gate.fire()
    return await harness.admitted()


async def test_the_limits_of_a_new_credential_grow_gradually(harness: GateHarness):
    out = await opened(harness, LIMITS.model_copy(update={"first_concurrency": 3}))
    assert len(out) == 4, "the probe was answered, and so it may have one more"
    for at_once in (8, 16, 32, 50, 50):
        out = await answer(harness, out)
        assert len(out) == at_once


async def test_a_refusal_halves_the_concurrency_once_for_all_running_calls(harness: GateHarness):
    out = await opened(harness)
    lessons = await refuse(harness, out)

    assert {(lesson.concurrency, lesson.per_minute) for lesson in lessons if lesson} == {(25, 1_000)}
    assert len(lessons) == 50
    (probe,) = await later(harness, milliseconds=REST_MS)
    (lesson,) = await refuse(harness, [probe])
    assert lesson is not None
    assert (lesson.concurrency, lesson.per_minute, lesson.every_ms) == (1, 500, 2 * STEP_MS), "a new lesson"


async def test_after_a_block_the_limit_grows_back_to_the_learned_value(harness: GateHarness):
    await refuse(harness, await opened(harness))
    out = await later(harness, milliseconds=REST_MS)
    for at_once in (1, 2, 4, 8, 16, 25, 25):
        assert len(out) == at_once
        out = await answer(harness, out)


async def test_each_step_of_recovery_adds_one_call_and_a_fortieth_of_the_minute_limit(harness: GateHarness):
    (lesson, *_) = await refuse(harness, await opened(harness))
    assert lesson is not None
    assert (lesson.begins_in_ms, lesson.every_ms) == (REST_MS, STEP_MS)
    assert lesson.ends_in_ms == REST_MS + max(50 - 25, (8_000 - 1_000) // 200) * STEP_MS

    (probe,) = await later(harness, milliseconds=REST_MS)
    out = await answer(harness, [probe])
    for _ in range(5):
        out = await answer(harness, out)
    assert len(out) == 25
    harness.advance(milliseconds=4 * STEP_MS)
    await harness.gate.open("octocat")
    assert len(out) + len(await harness.admitted()) == 29
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.concurrency_now, credential.per_minute_now) == (29, 1_000 + 4 * 200)
    harness.advance(milliseconds=lesson.ends_in_ms)
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.concurrency_now, credential.per_minute_now) == (50, 8_000)


async def test_a_minute_limit_is_learned_from_the_calls_of_the_minute(harness: GateHarness):
    out, calls = await opened(harness, LIMITS.model_copy(update={"per_minute": 840})), 1
    while calls + len(out) < 400:
        calls += len(out)
        out = await answer(harness, out)
    (lesson, *_) = await refuse(harness, out)
    assert lesson is not None
    assert lesson.per_minute == (calls + len(out)) // 2


async def test_a_block_of_one_bucket_does_not_change_the_learned_limits(harness: GateHarness):
    (first, *_) = await opened(harness)
    told = await harness.gate.report(settlement(first, blocked_ms=REST_MS, rests_bucket=True))
    assert (told.rests_ms, told.learned) == (REST_MS, None)


async def test_an_unreported_refusal_is_learned_with_the_settlement(harness: GateHarness):
    (first, *_) = await opened(harness)
    await harness.settle([settlement(first, blocked_ms=REST_MS)])
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.blocked_in_ms, credential.concurrency_now) == (REST_MS, 24)


async def test_a_reported_refusal_is_not_counted_again(harness: GateHarness):
    (first, *_) = await opened(harness)
    said = settlement(first, blocked_ms=REST_MS, is_guess=True)
    await harness.gate.report(said)
    harness.advance(milliseconds=REST_MS + 1)
    await harness.settle([msgspec.structs.replace(said, is_reported=True)])
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert credential.blocked_in_ms == 0


async def test_a_gate_without_data_gets_its_learned_limits_restored(harness: GateHarness):
    learned = LearnedLimits(
        concurrency=3, per_minute=100, begins_in_ms=-2 * STEP_MS, every_ms=STEP_MS, ends_in_ms=60 * STEP_MS
    )
    note = CredentialRecord(credential="token", bucket="core", learned=learned)
    for _ in range(2):
        await harness.gate.remind(PoolRecord(pool="octocat", started=0, running=0, notes=[note]))
    await harness.register(limits=LIMITS)
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.concurrency_now, credential.per_minute_now) == (5, 500)
