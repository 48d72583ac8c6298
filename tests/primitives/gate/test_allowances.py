"""What may be spent follows from what the upstream says, whatever order its answers arrive in."""

from datetime import timedelta

import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import Allowance, CredentialLimits, Outcome, settlement


async def left(harness: GateHarness, bucket: str = "core") -> int | None:
    (credential,) = (await harness.gate.status("octocat")).credentials
    return next(b.remaining for b in credential.buckets if b.name == bucket)


async def test_calls_in_progress_count_as_spent(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(15))

    assert len(await harness.admitted()) == 10


async def test_in_a_bucket_of_computing_time_a_credential_makes_one_call_at_a_time(harness: GateHarness):
    """Of each credential; what is counted elsewhere goes on beside it."""
    limits = PLENTY.model_copy(update={"one_at_a_time": frozenset({"graphql"})})
    for credential in ("token", "other"):
        await harness.register(credential, limits=limits)
    await harness.set_allowance(limit=1000)
    await harness.set_allowance(limit=1000, bucket="graphql")
    await harness.gate.enqueue([*jobs(5, "query", bucket="graphql", cost=7), *jobs(4, "page")])

    out = await harness.admitted()
    queries = [one for one in out if one.bucket == "graphql"]
    assert (len(out) - len(queries), sorted(one.credential for one in queries)) == (4, ["other", "token"])
    assert {b.reason for c in (await harness.gate.status("octocat")).credentials for b in c.buckets if b.reason} == {
        "concurrency"
    }

    await harness.settle([harness.answered(queries[0], 1000, 993)])
    (following,) = await harness.admitted()
    assert (following.bucket, following.credential) == ("graphql", queries[0].credential)
    await harness.settle_as([following], Outcome.UNKNOWN)
    assert [one.credential for one in await harness.admitted()] == [queries[0].credential], (
        "whatever became of the last"
    )


async def test_a_call_of_unknown_outcome_counts_as_spent(harness: GateHarness):
    """The upstream may have counted the call of a worker that died, so we do."""
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(15))

    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)

    assert await harness.admitted() == []


async def test_a_call_lost_at_the_end_of_a_window_counts_in_the_next_one_too(harness: GateHarness):
    """By the upstream's clock the next window may have been open already."""
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    harness.advance(seconds=3599)
    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)
    harness.advance(seconds=2)

    await harness.gate.enqueue(jobs(30, "next"))

    assert len(await harness.admitted()) == 9


async def test_a_lost_call_no_longer_counts_after_its_window(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)
    harness.advance(hours=1)

    await harness.gate.enqueue(jobs(30, "next"))

    assert len(await harness.admitted()) == 10


async def test_a_free_answer_costs_nothing(harness: GateHarness):
    """A 304 leaves `remaining` where it was, so as many calls may be made as before."""
    await harness.register()
    await harness.set_allowance(limit=10, remaining=3)
    for _ in range(10):
        await harness.gate.enqueue(jobs(3))
        out = await harness.admitted()
        assert len(out) == 3
        await harness.settle([harness.answered(one, limit=10, remaining=3) for one in out])


async def test_remaining_never_rises_within_one_window(harness: GateHarness):
    """Answers overtake each other; the least value is the newest."""
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(3))
    out = await harness.admitted()

    await harness.settle([harness.answered(out[0], 100, 40)])
    await harness.settle([harness.answered(out[1], 100, 60)])

    assert await left(harness) == 40


async def test_a_call_already_counted_by_the_upstream_is_not_counted_twice(harness: GateHarness):
    """The header of the first answer already contains the second call; settling that one must not charge it again."""
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(2))
    first, second = await harness.admitted()

    await harness.settle([harness.answered(second, 10, 8)])
    await harness.settle([harness.answered(first, 10, 9)])
    await harness.gate.enqueue(jobs(20, "more"))

    assert len(await harness.admitted()) == 8


async def test_a_newer_window_has_its_own_remaining_value(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=5)
    await harness.gate.enqueue(jobs(1))
    (out,) = await harness.admitted()

    await harness.settle([harness.answered(out, 100, 99, window=harness.window + 3600)])

    assert await left(harness) == 99


async def test_an_answer_of_an_older_window_changes_nothing(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=50)
    await harness.gate.enqueue(jobs(1))
    (out,) = await harness.admitted()

    await harness.settle([harness.answered(out, 100, 0, window=harness.window - 3600)])

    assert await left(harness) == 50


async def test_the_gate_reopens_when_the_window_ends_and_assumes_the_full_limit(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, remaining=2)
    await harness.gate.enqueue(jobs(30))
    out = await harness.admitted()
    assert len(out) == 2
    await harness.settle([harness.answered(one, 10, 0) for one in out])

    due_in_ms = await harness.gate.fire()
    assert due_in_ms == 3_600_000
    harness.advance(milliseconds=due_in_ms - 1)
    await harness.gate.fire()
    assert await harness.admitted() == []

    harness.advance(milliseconds=1)
    await harness.gate.fire()
    assert len(await harness.admitted()) == 10


async def test_calls_that_cross_the_end_of_a_window_count_against_the_new_one(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, remaining=4)
    await harness.gate.enqueue(jobs(30))
    assert len(await harness.admitted()) == 4

    harness.advance(hours=1)
    await harness.gate.fire()

    assert len(await harness.admitted()) == 6


async def test_late_answers_of_the_old_window_do_not_change_the_new_one(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, remaining=4)
    await harness.gate.enqueue(jobs(30))
    old = await harness.admitted()
    harness.advance(hours=1)
    await harness.gate.fire()
    await harness.admitted()

    await harness.settle([harness.answered(one, 10, 0) for one in old])

    assert len(await harness.admitted()) == 4


async def test_an_upstream_that_reports_the_old_window_is_believed(harness: GateHarness):
    """Its clock is behind ours: a call made after our end of the window still names the old one, so we wait on."""
    await harness.register()
    await harness.set_allowance(limit=10, remaining=0)
    await harness.gate.enqueue(jobs(30))
    harness.advance(hours=1)
    await harness.gate.fire()
    out = await harness.admitted()
    assert len(out) == 10

    await harness.settle([harness.answered(one, 10, 0) for one in out])

    assert await harness.admitted() == []
    assert await harness.gate.fire() == 1000


async def test_a_window_without_answers_ends_too(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=3, remaining=0)
    await harness.gate.enqueue(jobs(30))
    harness.advance(hours=1)
    await harness.gate.fire()
    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)
    assert await harness.admitted() == []

    due_in_ms = await harness.gate.fire()
    assert due_in_ms is not None
    harness.advance(milliseconds=due_in_ms)
    await harness.gate.fire()

    assert len(await harness.admitted()) == 3


async def test_the_floor_is_never_spent(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"floor": 100}))
    await harness.set_allowance(limit=5000, remaining=130)
    await harness.gate.enqueue(jobs(200))

    assert len(await harness.admitted()) == 30


@pytest.mark.parametrize(
    ("limit", "share", "spent"),
    [(30, 0.02, 30), (60, 0.02, 59), (60, 0, 60), (60, 0.1, 54), (60, 1, 0)],
)
async def test_the_floor_of_a_small_limit_is_limited_to_a_share_of_it(
    harness: GateHarness, limit: int, share: float, spent: int
):
    """30 searches a minute with a floor of 100 would never search."""
    limits = PLENTY.model_copy(update={"floor": 100, "floor_share": share})
    await harness.register(limits=limits)
    await harness.set_allowance(limit=limit)
    await harness.gate.enqueue(jobs(limit + 20))

    assert len(await harness.admitted()) == spent == limit - limits.floor_of(limit)


async def test_buckets_have_separate_allowances(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, remaining=0, bucket="core")
    await harness.set_allowance(limit=10, remaining=5, bucket="search")
    await harness.gate.enqueue(jobs(5, "core") + jobs(5, "search", bucket="search"))

    assert all(name.startswith("search") for name in names(await harness.admitted()))


async def test_an_answer_may_name_another_bucket_than_assumed(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, bucket="core")
    await harness.gate.enqueue([job("one")])
    (out,) = await harness.admitted()
    said = Allowance(limit=30, remaining=29, window=harness.window, resets_in_ms=60_000)

    await harness.settle([settlement(out, allowance=said, bucket="search")])

    assert (await left(harness, "core"), await left(harness, "search")) == (10, 29)


async def test_a_blocked_credential_is_not_used_until_the_block_ends(harness: GateHarness):
    """403 or 429 with retry-after: the whole credential waits, in every bucket."""
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("limited")])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=30_000)], follow_ups=[job("limited")])

    assert await harness.admitted() == []
    status = await harness.gate.status("octocat")
    assert status.credentials[0].blocked_in_ms == 30_000
    assert status.credentials[0].buckets[0].reason == "blocked"
    assert status.waiting == {"core": 1}

    shard_status = await harness.gate.shard_status()
    assert (shard_status.blocked, shard_status.longest_ms) == (1, 30_000)

    harness.advance(seconds=30)
    await harness.gate.fire()
    assert names(await harness.admitted()) == ["limited"]
    shard_status = await harness.gate.shard_status()
    assert (shard_status.blocked, shard_status.longest_ms) == (0, 0)


async def test_calls_of_any_minute_never_exceed_the_limit(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue(jobs(40))
    made: list[float] = [0.0]  # the probe
    elapsed = 0.0
    while len(made) < 30:
        out = await harness.admitted()
        made += [elapsed] * len(out)
        await harness.settle([harness.answered(one, 1000, 900) for one in out])
        due_in_ms = await harness.gate.fire()
        if due_in_ms:
            elapsed += due_in_ms / 1000
            harness.advance(milliseconds=due_in_ms)
            await harness.gate.fire()

    assert max(sum(start <= at < start + 60 for at in made) for start in made) == 10


async def test_a_job_with_a_high_cost_waits_for_enough_units(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=5)
    await harness.gate.enqueue([job("query", cost=8), job("small", run="run-2")])
    assert await harness.admitted() == []

    harness.advance(hours=1)
    await harness.gate.fire()
    assert names(await harness.admitted()) == ["query", "small"]


async def test_a_job_that_costs_more_than_a_window_gets_a_full_window(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue([job("huge", cost=50)])

    assert names(await harness.admitted()) == ["huge"]


async def test_a_retired_credential_makes_no_call(harness: GateHarness):
    """401: the token is no good any more. Another of the pool goes on."""
    await harness.register("bad")
    await harness.register("good")
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(2, affinity="bad"))
    out = await harness.admitted()
    await harness.settle([settlement(one, retired=True) for one in out], follow_ups=jobs(2, "again", affinity="bad"))

    assert {one.credential for one in await harness.admitted()} == {"good"}
    await harness.register("bad")
    await harness.gate.enqueue([job("after renewal", affinity="bad")])
    assert [one.credential for one in await harness.admitted()] == ["bad"]


async def test_jobs_of_a_removed_credential_go_to_the_others(harness: GateHarness):
    await harness.register("leaving", limits=PLENTY.model_copy(update={"concurrency": 1}))
    await harness.register("staying")
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(3, affinity="leaving"))
    (out,) = await harness.admitted()

    await harness.gate.dismiss("leaving")

    assert {one.credential for one in await harness.admitted()} == {"staying"}
    assert (await harness.settle([harness.answered(out, 100, 98)])).settled == 1


async def test_the_state_of_a_credential_survives_a_second_registration(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=1)
    await harness.register(limits=CredentialLimits(concurrency=7, floor=0, window=timedelta(minutes=1)))

    assert await left(harness) == 1


async def test_headers_without_an_answer_are_refused(harness: GateHarness):
    await harness.register()
    await harness.gate.enqueue([job("one")])
    (out,) = await harness.admitted()
    said = Allowance(limit=1, remaining=1, window=1, resets_in_ms=1)
    with pytest.raises(InvalidArgument, match=r"^allowance is"):
        settlement(out, Outcome.UNKNOWN, allowance=said)
    with pytest.raises(InvalidArgument, match=r"^blocked_ms is 0"):
        settlement(out, blocked_ms=0)
    with pytest.raises(InvalidArgument, match=r"^remaining is -1"):
        Allowance(limit=1, remaining=-1, window=1, resets_in_ms=1)
