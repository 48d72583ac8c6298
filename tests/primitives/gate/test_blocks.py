"""A credential that was asked to rest begins again with one call, and rests longer where it was asked again."""

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs
from tidegate.primitives.gate import Admitted, CredentialRecord, Outcome, PoolRecord, settlement

GUESS_MS = 60_000


async def refused(
    harness: GateHarness, admitted: Admitted, blocked_ms: int = GUESS_MS, *, is_guess: bool = True
) -> int:
    """The upstream refuses a call, whose job waits again; for how long the credential rests now."""
    again = job(admitted.job, bucket=admitted.bucket)
    await harness.settle([settlement(admitted, blocked_ms=blocked_ms, is_guess=is_guess)], follow_ups=[again])
    (credential,) = (await harness.gate.status("octocat")).credentials
    return credential.blocked_in_ms


async def rested(harness: GateHarness, ms: int, *, later_s: float = 0) -> list[Admitted]:
    """What is let out when the rest is over."""
    harness.advance(milliseconds=ms, seconds=later_s)
    await harness.gate.fire()
    return await harness.admitted()


async def ready(harness: GateHarness, *waiting: str) -> list[Admitted]:
    """A credential with its calls under way, and more that wait."""
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 3}))
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue([job(name) for name in ("a", "b", "c", *waiting)])
    return await harness.admitted()


async def test_a_guessed_block_doubles_each_time_it_was_too_short_up_to_an_hour(harness: GateHarness):
    (out, *others) = await ready(harness)
    await harness.settle_as(others, Outcome.UNUSED)
    rests = list[int]()
    for _ in range(8):
        rests.append(await refused(harness, out))
        (out,) = await rested(harness, rests[-1], later_s=590)
    assert [ms // GUESS_MS for ms in rests] == [1, 2, 4, 8, 16, 32, 60, 60]

    harness.advance(minutes=11)
    assert await refused(harness, out) == GUESS_MS, "that one was long enough"


async def test_a_block_lasts_as_long_as_the_upstream_says_however_often_it_repeats(harness: GateHarness):
    (out, *others) = await ready(harness)
    await harness.settle_as(others, Outcome.UNUSED)
    for _ in range(4):
        assert await refused(harness, out, 7_000, is_guess=False) == 7_000
        (out,) = await rested(harness, 7_000)


async def test_calls_refused_together_cause_one_block(harness: GateHarness):
    out = await ready(harness)
    assert [await refused(harness, one) for one in out] == [GUESS_MS] * 3
    (first,) = await rested(harness, GUESS_MS)
    assert await refused(harness, first) == 2 * GUESS_MS


async def test_after_a_block_a_single_call_is_made_first_and_the_others_after_its_answer(harness: GateHarness):
    """Whatever bucket they are in: the credential was asked to rest, not one of its allowances."""
    out = await ready(harness, "d", "e")
    await harness.gate.enqueue(jobs(3, "query", bucket="search"))
    for one in out:
        await refused(harness, one, 7_000, is_guess=False)

    (first,) = await rested(harness, 7_000)
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert {bucket.reason for bucket in credential.buckets} == {"probing"}
    assert await refused(harness, first, 7_000, is_guess=False) == 7_000
    (second,) = await rested(harness, 7_000)
    await harness.settle_as([second], Outcome.UNKNOWN)
    (third,) = await harness.admitted()
    await harness.settle_as([third], Outcome.UNUSED)
    (fourth,) = await harness.admitted()

    await harness.settle([harness.answered(fourth, 1000, 900)])
    assert len(await harness.admitted()) == 1, "as many as it may have at once after these refusals"


async def test_an_answer_to_a_call_from_before_the_block_proves_nothing(harness: GateHarness):
    first, second, third = await ready(harness, "d", "e", "f")
    await refused(harness, first, 7_000, is_guess=False)
    await harness.settle([harness.answered(one, 1000, 900) for one in (second, third)])
    assert len(await rested(harness, 7_000)) == 1


async def test_a_gate_with_a_restored_block_is_as_careful_after_it(harness: GateHarness):
    await harness.register(limits=PLENTY)
    await harness.set_allowance(limit=1000)
    note = CredentialRecord(credential="token", bucket="core", blocked_ms=GUESS_MS)
    await harness.gate.remind(PoolRecord(pool="octocat", started=0, running=0, notes=[note]))
    await harness.gate.enqueue(jobs(3))
    (out,) = await rested(harness, GUESS_MS)
    assert await refused(harness, out) == 2 * GUESS_MS
