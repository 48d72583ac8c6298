"""A bucket with a pace: one call at a time, a gap after each, and a rest for all where the upstream asks for one."""

import msgspec
import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tests.primitives.gate.test_repair import pages
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import Admitted, Outcome, PaceStatus, settlement

GAP_MS = 1_000
HOST, OTHER = "shop.test:80", "market.test:80"
IDENTITY = PLENTY.model_copy(update={"concurrency": 1, "metered": False})


async def crowd(harness: GateHarness, count: int) -> list[str]:
    """Identities that nobody meters."""
    identities = [f"crawl:{n:03}" for n in range(count)]
    for each in identities:
        await harness.register(each, limits=IDENTITY)
    return identities


async def paced(harness: GateHarness, count: int = 3, *, gap_ms: int = GAP_MS, waiting: int = 5) -> None:
    """A host whose gap is over, and jobs that wait for it."""
    await crowd(harness, count)
    await harness.gate.pace("octocat", HOST, gap_ms=gap_ms)
    harness.advance(milliseconds=gap_ms)
    await harness.gate.enqueue(jobs(waiting, bucket=HOST))


async def later(harness: GateHarness, ms: float) -> list[Admitted]:
    """What the timekeeper lets out then."""
    harness.advance(milliseconds=ms)
    await harness.gate.fire()
    return await harness.admitted()


async def pace_of(harness: GateHarness, bucket: str = HOST) -> PaceStatus:
    (pace,) = [one for one in (await harness.gate.status("octocat")).paces if one.bucket == bucket]
    return pace


async def test_the_next_call_starts_a_gap_after_the_end_of_the_last_one_and_not_earlier(harness: GateHarness):
    await paced(harness)
    for _ in range(4):
        (out,) = await harness.admitted()
        for _ in range(3):
            assert await later(harness, 7_000) == [], "one at a time, however long it takes"
            assert await harness.gate.open("octocat") == 0
        await harness.settle([settlement(out)])
        assert await harness.gate.fire() == GAP_MS
        assert await later(harness, GAP_MS - 1) == []
        assert await harness.gate.open("octocat") == 0
        harness.advance(milliseconds=1)
        await harness.gate.fire()


async def test_a_bucket_without_state_counts_its_gap_from_now(harness: GateHarness):
    await crowd(harness, 1)
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS)
    await harness.gate.enqueue(jobs(1, bucket=HOST))
    assert await harness.admitted() == []
    assert len(await later(harness, GAP_MS)) == 1


async def test_setting_the_same_pace_again_has_no_effect(harness: GateHarness):
    await paced(harness)
    (out,) = await harness.admitted()
    await harness.settle([settlement(out)])
    harness.advance(milliseconds=GAP_MS - 1)
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS)
    assert await harness.gate.fire() == 1
    assert len(await later(harness, 1)) == 1


async def test_a_changed_gap_counts_from_the_end_of_the_last_call_immediately(harness: GateHarness):
    await paced(harness)
    (out,) = await harness.admitted()
    await harness.settle([settlement(out)])
    await harness.gate.pace("octocat", HOST, gap_ms=5 * GAP_MS)
    assert await later(harness, 5 * GAP_MS - 1) == []
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS)
    assert len(await harness.admitted()) == 1


async def test_one_call_at_a_time_needs_no_gap(harness: GateHarness):
    await crowd(harness, 3)
    await harness.gate.pace("octocat", HOST, gap_ms=0, one_at_a_time=True)
    await harness.gate.enqueue(jobs(2, bucket=HOST))
    (first,) = await harness.admitted()
    await harness.settle([settlement(first)])
    assert len(await harness.admitted()) == 1


async def test_a_zero_gap_delays_no_call(harness: GateHarness):
    await crowd(harness, 3)
    await harness.gate.pace("octocat", HOST, gap_ms=0)
    await harness.gate.enqueue(jobs(5, bucket=HOST))
    assert len(await harness.admitted()) == 3


async def test_calls_from_before_the_pace_was_set_must_end_first(harness: GateHarness):
    """Nobody counted them one by one; whoever makes them holds them."""
    await paced(harness, 3, waiting=0)
    await harness.gate.pace("octocat", HOST, gap_ms=0)
    await harness.gate.enqueue(jobs(5, bucket=HOST))
    out = await harness.admitted()
    assert len(out) == 3
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS)
    for one in out:
        assert await later(harness, 2 * GAP_MS) == []
        await harness.settle([settlement(one)])
    assert await later(harness, GAP_MS - 1) == []
    assert len(await later(harness, 1)) == 1


async def test_other_buckets_and_other_pools_have_their_own_pace(harness: GateHarness):
    await paced(harness)
    await harness.register("elsewhere", pool="hubot", limits=IDENTITY)
    await harness.gate.enqueue([job("other", bucket=OTHER), job("pool", pool="hubot", bucket=HOST)])
    assert sorted(names(await harness.admitted())) == ["job-00000", "other", "pool"]


async def test_a_call_that_was_not_made_costs_no_gap(harness: GateHarness):
    """Its permit goes back; the gap is that after the last call which was made."""
    await paced(harness)
    (first,) = await harness.admitted()
    await harness.settle([settlement(first)])
    (second,) = await later(harness, GAP_MS)
    harness.advance(milliseconds=1)
    await harness.settle_as([second], Outcome.UNUSED)
    assert len(await harness.admitted()) == 1


async def test_a_call_that_a_dead_worker_may_have_made_costs_a_gap(harness: GateHarness):
    await paced(harness)
    await harness.admitted()
    await harness.take_over()
    (heir,) = await harness.admitted()
    await harness.settle_as([msgspec.structs.replace(heir, deliveries=2)], Outcome.UNUSED)
    assert await later(harness, GAP_MS - 1) == []
    assert len(await later(harness, 1)) == 1


async def test_a_permit_whose_message_vanished_holds_its_bucket_until_it_is_repaired(harness: GateHarness):
    await paced(harness)
    (lost,) = await harness.admitted()
    await harness.valkey.execute("XDEL", harness.stream, lost.message)
    assert await later(harness, 60_000) == []

    assert await harness.gate.rebuild(pages(jobs(5, bucket=HOST))) == 1

    assert (await pace_of(harness)).is_out is False
    assert await later(harness, GAP_MS - 1) == []
    assert len(await later(harness, 1)) == 1


async def test_a_credential_removed_during_its_call_does_not_block_its_bucket_forever(harness: GateHarness):
    await paced(harness)
    (out,) = await harness.admitted()
    await harness.gate.dismiss(out.credential)
    assert await later(harness, 60_000) == []
    await harness.settle([settlement(out, pause_ms=3_000)])
    assert await later(harness, 2_999) == [], "what it heard still counts"
    (second,) = await later(harness, 1)

    await harness.gate.dismiss(second.credential)
    await harness.register(second.credential, pool="hubot", limits=IDENTITY)
    await harness.settle([settlement(second)])
    assert len(await later(harness, GAP_MS)) == 1


async def test_a_pause_applies_to_all_credentials_and_only_to_this_bucket(harness: GateHarness):
    await paced(harness, 3)
    await harness.gate.enqueue(jobs(3, "other", bucket=OTHER))
    by_bucket = {one.bucket: one for one in await harness.admitted()}
    await harness.settle([settlement(by_bucket[HOST], pause_ms=30_000)])
    assert (await pace_of(harness)).rests_in_ms == 30_000
    assert names(await harness.admitted()) == ["other-00002"], "whoever is free serves the others"
    await harness.settle([settlement(by_bucket[OTHER])])
    assert await later(harness, 29_999) == []
    assert [one.bucket for one in await later(harness, 1)] == [HOST]


async def test_a_bucket_without_a_pace_can_be_paused_too(harness: GateHarness):
    await crowd(harness, 2)
    await harness.gate.enqueue(jobs(4, bucket=HOST))
    first, second = await harness.admitted()
    await harness.settle([settlement(first, pause_ms=5_000)])
    await harness.settle([settlement(second, pause_ms=2_000)])
    assert await later(harness, 4_999) == [], "the longer rest counts"
    assert len(await later(harness, 1)) == 2


async def test_a_pause_set_with_the_pace_lasts_at_least_its_duration(harness: GateHarness):
    await crowd(harness, 1)
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS, rest_ms=9_000)
    await harness.gate.pace("octocat", HOST, gap_ms=GAP_MS, rest_ms=1)
    await harness.gate.enqueue(jobs(1, bucket=HOST))
    assert await later(harness, 8_999) == []
    assert len(await later(harness, 1)) == 1


async def test_a_clock_that_was_set_back_prolongs_no_gap(harness: GateHarness):
    await paced(harness)
    (out,) = await harness.admitted()
    await harness.settle([settlement(out)])
    harness.advance(hours=-1)
    await harness.gate.open("octocat")
    assert len(await later(harness, GAP_MS)) == 1


async def test_a_job_bound_to_its_credential_gets_its_turn(harness: GateHarness):
    """Others are received better, and would go first for ever."""
    first, second = await crowd(harness, 2)
    await harness.gate.pace("octocat", HOST, gap_ms=0, one_at_a_time=True)
    await harness.gate.enqueue([job("spoils", bucket=HOST, affinity=second)])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=1, rests_bucket=True)])
    harness.advance(milliseconds=1)
    await harness.gate.enqueue([*jobs(3, bucket=HOST), job("z-bound", run="run-2", bucket=HOST, affinity=second)])
    served = list[tuple[str, str]]()
    for _ in range(4):
        (out,) = await harness.admitted()
        served.append((out.job, out.credential))
        await harness.settle([settlement(out)])
    assert served[:2] == [("job-00000", first), ("z-bound", second)]


async def test_many_hosts_whose_gap_ends_together_are_all_opened(harness: GateHarness):
    """In several steps, none of which holds the server for long."""
    await harness.register(limits=IDENTITY.model_copy(update={"concurrency": 200}))
    hosts = [f"host-{n}" for n in range(120)]
    for host in hosts:
        await harness.gate.pace("octocat", host, gap_ms=GAP_MS)
    await harness.gate.enqueue([job(f"job-{host}", bucket=host) for host in hosts])
    assert await harness.admitted() == []
    assert sorted(one.bucket for one in await later(harness, GAP_MS)) == sorted(hosts)
    assert await harness.gate.fire() is None


async def test_an_idle_bucket_plans_no_wake_up(harness: GateHarness):
    await paced(harness, waiting=1)
    (out,) = await harness.admitted()
    await harness.settle([settlement(out)])
    assert await harness.gate.fire() is None


async def test_the_status_shows_the_pace(harness: GateHarness):
    await paced(harness)
    (out,) = await harness.admitted()
    assert await pace_of(harness) == PaceStatus(
        bucket=HOST,
        gap_ms=GAP_MS,
        gap_now_ms=GAP_MS,
        one_at_a_time=True,
        healthy=3,
        is_out=True,
        rests_in_ms=0,
    )
    await harness.settle([settlement(out)])
    harness.advance(milliseconds=400)
    pace = await pace_of(harness)
    assert (pace.is_out, pace.opens_in_ms) == (False, GAP_MS - 400)


async def test_invalid_arguments_are_refused(harness: GateHarness):
    for gap_ms, rest_ms in [(-1, 0), (1, -1), (10**12, 0), (0, 10**12)]:
        with pytest.raises(InvalidArgument):
            await harness.gate.pace("octocat", HOST, gap_ms=gap_ms, rest_ms=rest_ms)
    for pool, bucket in [("", HOST), ("octocat", ""), ("octocat", "a|b")]:
        with pytest.raises(InvalidArgument):
            await harness.gate.pace(pool, bucket, gap_ms=1)
    await paced(harness)
    (out,) = await harness.admitted()
    for wrong in (0, -1, 10**12):
        with pytest.raises(InvalidArgument):
            settlement(out, pause_ms=wrong)
