"""Rests of one bucket of a credential, how well each is received, and the slowing down where few are left."""

import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tests.primitives.gate.test_pace import GAP_MS, HOST, IDENTITY, OTHER, crowd, later, pace_of
from tidegate.primitives.gate import Admitted, BucketStatus, CredentialRecord, Outcome, PoolRecord, settlement

GUESS_MS = 60_000


async def book_of(harness: GateHarness, credential: str, bucket: str = HOST) -> BucketStatus:
    credentials = (await harness.gate.status("octocat")).credentials
    (book,) = [book for one in credentials if one.name == credential for book in one.buckets if book.name == bucket]
    return book


async def rest(harness: GateHarness, admitted: Admitted, ms: int = GUESS_MS, *, is_guess: bool = False) -> None:
    await harness.settle([settlement(admitted, blocked_ms=ms, is_guess=is_guess, rests_bucket=True)])


async def call(harness: GateHarness, credential: str, name: str, bucket: str = HOST) -> Admitted:
    """This one makes a call there, since no other can."""
    await harness.gate.enqueue([job(name, bucket=bucket, affinity=credential)])
    (admitted,) = await harness.admitted()
    assert admitted.credential == credential
    return admitted


async def rested(harness: GateHarness, credentials: list[str], ms: int) -> None:
    """All of these rest at HOST from now on."""
    notes = [CredentialRecord(credential=each, bucket=HOST, blocked_ms=ms, rests_bucket=True) for each in credentials]
    await harness.gate.remind(PoolRecord(pool="octocat", started=0, running=0, notes=notes))


async def test_a_block_of_one_bucket_does_not_affect_other_buckets(harness: GateHarness):
    (only,) = await crowd(harness, 1)
    await rest(harness, await call(harness, only, "first"))
    await harness.gate.enqueue([*jobs(2, bucket=HOST), job("other", bucket=OTHER)])
    assert names(await harness.admitted()) == ["other"]
    book = await book_of(harness, only)
    assert (book.reason, book.rests_in_ms, book.opens_in_ms) == ("blocked", GUESS_MS, GUESS_MS)
    assert (await harness.gate.status("octocat")).credentials[0].blocked_in_ms == 0
    assert (await harness.gate.shard_status()).blocked == 1


async def test_a_block_of_one_credential_does_not_affect_other_credentials(harness: GateHarness):
    first, second = await crowd(harness, 2)
    await rest(harness, await call(harness, first, "first"))
    await harness.gate.enqueue(jobs(3, bucket=HOST))
    (out,) = await harness.admitted()
    assert out.credential == second


async def test_guessed_durations_double_separately_for_each_bucket(harness: GateHarness):
    (only,) = await crowd(harness, 1)
    lasted = list[int]()
    for n in range(3):
        await rest(harness, await call(harness, only, f"job-{n}"), is_guess=True)
        lasted.append((await book_of(harness, only)).rests_in_ms // GUESS_MS)
        harness.advance(milliseconds=lasted[-1] * GUESS_MS)
    await rest(harness, await call(harness, only, "other", OTHER), is_guess=True)
    assert lasted == [1, 2, 4]
    assert (await book_of(harness, only, OTHER)).rests_in_ms == GUESS_MS


async def test_after_a_block_of_one_bucket_a_single_call_is_made_there_first(harness: GateHarness):
    await harness.register("many", limits=IDENTITY.model_copy(update={"concurrency": 4}))
    await rest(harness, await call(harness, "many", "first"))
    await harness.gate.enqueue([*jobs(5, bucket=HOST), job("other", bucket=OTHER)])
    assert names(await harness.admitted()) == ["other"]
    (trial,) = await later(harness, GUESS_MS)
    assert (await book_of(harness, "many")).reason == "probing"
    await harness.settle_as([trial], Outcome.UNKNOWN)
    (second,) = await harness.admitted()
    await harness.settle([settlement(second)])
    assert len(await harness.admitted()) == 3, "with the other's call, as many as it may have"


async def test_an_answer_to_a_call_from_before_the_block_changes_nothing(harness: GateHarness):
    await harness.register("many", limits=IDENTITY.model_copy(update={"concurrency": 2}))
    await harness.gate.enqueue(jobs(2, bucket=HOST))
    first, second = await harness.admitted()
    await rest(harness, first)
    await harness.settle([settlement(second)], follow_ups=jobs(3, "next", bucket=HOST))
    assert (await book_of(harness, "many")).health == 0.5
    assert len(await later(harness, GUESS_MS)) == 1


async def test_health_is_halved_by_blocks_and_restored_by_answers_and_time(harness: GateHarness):
    (only,) = await crowd(harness, 1)
    first = await call(harness, only, "first")
    assert (await book_of(harness, only)).health == 1
    await rest(harness, first, 1)
    assert (await book_of(harness, only)).health == 0.5
    harness.advance(milliseconds=1)
    await rest(harness, await call(harness, only, "second"), 1)
    assert (await book_of(harness, only)).health == pytest.approx(0.25, abs=0.001)
    harness.advance(milliseconds=1)
    await harness.settle([settlement(await call(harness, only, "third"))])
    assert (await book_of(harness, only)).health == pytest.approx(0.3, abs=0.001)
    harness.advance(minutes=15)
    assert (await book_of(harness, only)).health == pytest.approx(0.8, abs=0.001)
    harness.advance(minutes=15)
    assert (await book_of(harness, only)).health == 1


async def test_calls_refused_together_halve_the_health_once(harness: GateHarness):
    await harness.register("many", limits=IDENTITY.model_copy(update={"concurrency": 3}))
    await harness.gate.enqueue(jobs(3, bucket=HOST))
    for one in await harness.admitted():
        await rest(harness, one)
    assert (await book_of(harness, "many")).health == 0.5


async def test_healthier_credentials_are_used_first_and_among_equals_the_longest_idle(harness: GateHarness):
    first, second, third = await crowd(harness, 3)
    await harness.gate.pace("octocat", HOST, gap_ms=0, one_at_a_time=True)
    await rest(harness, await call(harness, second, "spoils"), 1)
    harness.advance(milliseconds=1)
    await harness.gate.enqueue(jobs(4, bucket=HOST))
    order = list[str]()
    for _ in range(4):
        (out,) = await harness.admitted()
        order.append(out.credential)
        await harness.settle([settlement(out)])
    assert order == [first, third, first, third]

    await harness.gate.pace("octocat", OTHER, gap_ms=0, one_at_a_time=True)
    await harness.gate.enqueue([job("other", bucket=OTHER)])
    (out,) = await harness.admitted()
    assert out.credential == second, "there it is as good as any, and was used least"


async def test_credentials_with_more_units_are_used_first_regardless_of_health(harness: GateHarness):
    for name in ("rich", "poor"):
        await harness.register(name)
    await harness.gate.enqueue([job("a", affinity="rich"), job("b", affinity="poor")])
    for one in await harness.admitted():
        await harness.settle([harness.answered(one, 1000, 900 if one.credential == "rich" else 500)])
    await harness.gate.enqueue([job("c", affinity="rich")])
    await rest(harness, (await harness.admitted())[0], 1)
    harness.advance(milliseconds=1)
    await harness.gate.enqueue([job("d")])
    assert [one.credential for one in await harness.admitted()] == ["rich"]


@pytest.mark.parametrize(
    ("resting", "gap_ms"),
    [(0, 500), (32, 500), (33, 2_000), (36, 2_000), (37, 4_000), (38, 4_000), (39, 8_000)],
)
async def test_the_pace_slows_down_as_more_credentials_are_blocked(harness: GateHarness, resting: int, gap_ms: int):
    """Of forty: normal down to a fifth, then half as fast with each halving of the share; it never stops."""
    identities = await crowd(harness, 40)
    await harness.gate.pace("octocat", HOST, gap_ms=500)
    await rested(harness, identities[:resting], 3_600_000)
    await harness.gate.enqueue(jobs(3, bucket=HOST))
    assert (await pace_of(harness)).gap_now_ms == gap_ms
    assert (await pace_of(harness)).healthy == 40 - resting
    assert await later(harness, gap_ms - 1) == []
    (out,) = await later(harness, 1)
    await harness.settle([settlement(out)])
    assert await later(harness, gap_ms - 1) == []
    assert len(await later(harness, 1)) == 1


async def test_when_almost_all_are_blocked_even_a_bucket_without_a_gap_is_called_sequentially(harness: GateHarness):
    identities = await crowd(harness, 20)
    await harness.gate.pace("octocat", HOST, gap_ms=0)
    await harness.gate.enqueue(jobs(40, bucket=HOST))
    out = await harness.admitted()
    assert len(out) == 20
    await rested(harness, identities[:18], 3_600_000)
    for one in out[:-1]:
        await harness.settle([settlement(one)])
        assert await later(harness, 10_000) == [], "the others' end is waited for"
    await harness.settle([settlement(out[-1])])
    assert await later(harness, 1_999) == []
    assert len(await later(harness, 1)) == 1


async def test_after_the_blocks_the_normal_pace_returns(harness: GateHarness):
    identities = await crowd(harness, 10)
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS)
    await rested(harness, identities, GUESS_MS)
    await harness.gate.enqueue(jobs(3, bucket=HOST))
    assert await later(harness, GUESS_MS - 1) == [], "nobody is left"
    (trial,) = await later(harness, 1)
    await harness.settle([settlement(trial)])
    assert (await pace_of(harness)).gap_now_ms == GAP_MS
    assert len(await later(harness, GAP_MS)) == 1


async def test_retired_credentials_are_not_counted_as_healthy(harness: GateHarness):
    await crowd(harness, 6)
    await harness.gate.pace("octocat", HOST, gap_ms=0)
    await harness.gate.enqueue(jobs(6, bucket=HOST))
    out = await harness.admitted()
    await harness.settle([settlement(one, retired=True) for one in out[:5]])
    assert (await pace_of(harness)).healthy == 1
    assert (await pace_of(harness)).gap_now_ms == 2_000


async def test_a_gate_with_a_restored_bucket_block_is_as_careful_after_it(harness: GateHarness):
    """Even where the credential is registered only afterwards."""
    note = CredentialRecord(credential="many", bucket=HOST, blocked_ms=GUESS_MS, rests_bucket=True)
    await harness.gate.remind(PoolRecord(pool="octocat", started=0, running=0, notes=[note]))
    await harness.register("many", limits=IDENTITY.model_copy(update={"concurrency": 9}))
    await harness.gate.enqueue([*jobs(5, bucket=HOST), job("other", bucket=OTHER)])
    assert names(await harness.admitted()) == ["other"]
    (trial,) = await later(harness, GUESS_MS)
    await rest(harness, trial, is_guess=True)
    assert (await book_of(harness, "many")).rests_in_ms == 2 * GUESS_MS


async def test_a_metered_credential_can_be_blocked_in_one_bucket_too(harness: GateHarness):
    await harness.register(limits=PLENTY)
    await harness.set_allowance(limit=1000)
    await harness.set_allowance(limit=1000, bucket="search")
    await harness.gate.enqueue(jobs(1))
    await rest(harness, (await harness.admitted())[0])
    await harness.gate.enqueue([*jobs(3), *jobs(3, "query", bucket="search")])
    assert {one.bucket for one in await harness.admitted()} == {"search"}
    (trial,) = await later(harness, GUESS_MS)
    await harness.settle([harness.answered(trial, 1000, 900)])
    assert len(await harness.admitted()) == 2
