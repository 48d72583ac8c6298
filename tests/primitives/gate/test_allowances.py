"""What may be spent follows from what the upstream says, whatever order its answers arrive in."""

from datetime import timedelta

import pytest

from tests.primitives.gate.desk import PLENTY, Desk, job, jobs, names
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import Allowance, CredentialLimits, Outcome, settlement


async def left(desk: Desk, bucket: str = "core") -> int | None:
    (credential,) = (await desk.gate.status("octocat")).credentials
    return next(b.remaining for b in credential.buckets if b.name == bucket)


async def test_calls_in_progress_count_as_spent(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(15))

    assert len(await desk.admitted()) == 10


async def test_in_a_bucket_of_computing_time_a_credential_makes_one_call_at_a_time(desk: Desk):
    """Of each credential; what is counted elsewhere goes on beside it."""
    limits = PLENTY.model_copy(update={"one_at_a_time": frozenset({"graphql"})})
    for credential in ("token", "other"):
        await desk.enrol(credential, limits=limits)
    await desk.know(limit=1000)
    await desk.know(limit=1000, bucket="graphql")
    await desk.gate.enqueue([*jobs(5, "query", bucket="graphql", cost=7), *jobs(4, "page")])

    out = await desk.admitted()
    queries = [one for one in out if one.bucket == "graphql"]
    assert (len(out) - len(queries), sorted(one.credential for one in queries)) == (4, ["other", "token"])
    assert {b.reason for c in (await desk.gate.status("octocat")).credentials for b in c.buckets if b.reason} == {
        "concurrency"
    }

    await desk.settle([desk.answered(queries[0], 1000, 993)])
    (following,) = await desk.admitted()
    assert (following.bucket, following.credential) == ("graphql", queries[0].credential)
    await desk.settle_as([following], Outcome.UNKNOWN)
    assert [one.credential for one in await desk.admitted()] == [queries[0].credential], "whatever became of the last"


async def test_a_call_of_unknown_outcome_counts_as_spent(desk: Desk):
    """The upstream may have counted the call of a worker that died, so we do."""
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(15))

    await desk.settle_as(await desk.admitted(), Outcome.UNKNOWN)

    assert await desk.admitted() == []


async def test_a_call_lost_at_the_end_of_a_window_counts_in_the_next_one_too(desk: Desk):
    """By the upstream's clock the next window may have been open already."""
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(1))
    desk.advance(seconds=3599)
    await desk.settle_as(await desk.admitted(), Outcome.UNKNOWN)
    desk.advance(seconds=2)

    await desk.gate.enqueue(jobs(30, "next"))

    assert len(await desk.admitted()) == 9


async def test_a_lost_call_no_longer_counts_after_its_window(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(1))
    await desk.settle_as(await desk.admitted(), Outcome.UNKNOWN)
    desk.advance(hours=1)

    await desk.gate.enqueue(jobs(30, "next"))

    assert len(await desk.admitted()) == 10


async def test_a_free_answer_costs_nothing(desk: Desk):
    """A 304 leaves `remaining` where it was, so as many calls may be made as before."""
    await desk.enrol()
    await desk.know(limit=10, remaining=3)
    for _ in range(10):
        await desk.gate.enqueue(jobs(3))
        out = await desk.admitted()
        assert len(out) == 3
        await desk.settle([desk.answered(one, limit=10, remaining=3) for one in out])


async def test_remaining_never_rises_within_one_window(desk: Desk):
    """Answers overtake each other; the least value is the newest."""
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(3))
    out = await desk.admitted()

    await desk.settle([desk.answered(out[0], 100, 40)])
    await desk.settle([desk.answered(out[1], 100, 60)])

    assert await left(desk) == 40


async def test_a_call_already_counted_by_the_upstream_is_not_counted_twice(desk: Desk):
    """The header of the first answer already contains the second call; settling that one must not charge it again."""
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(2))
    first, second = await desk.admitted()

    await desk.settle([desk.answered(second, 10, 8)])
    await desk.settle([desk.answered(first, 10, 9)])
    await desk.gate.enqueue(jobs(20, "more"))

    assert len(await desk.admitted()) == 8


async def test_a_newer_window_has_its_own_remaining_value(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=5)
    await desk.gate.enqueue(jobs(1))
    (out,) = await desk.admitted()

    await desk.settle([desk.answered(out, 100, 99, window=desk.window + 3600)])

    assert await left(desk) == 99


async def test_an_answer_of_an_older_window_changes_nothing(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=50)
    await desk.gate.enqueue(jobs(1))
    (out,) = await desk.admitted()

    await desk.settle([desk.answered(out, 100, 0, window=desk.window - 3600)])

    assert await left(desk) == 50


async def test_the_gate_reopens_when_the_window_ends_and_assumes_the_full_limit(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10, remaining=2)
    await desk.gate.enqueue(jobs(30))
    out = await desk.admitted()
    assert len(out) == 2
    await desk.settle([desk.answered(one, 10, 0) for one in out])

    due_in_ms = await desk.gate.fire()
    assert due_in_ms == 3_600_000
    desk.advance(milliseconds=due_in_ms - 1)
    await desk.gate.fire()
    assert await desk.admitted() == []

    desk.advance(milliseconds=1)
    await desk.gate.fire()
    assert len(await desk.admitted()) == 10


async def test_calls_that_cross_the_end_of_a_window_count_against_the_new_one(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10, remaining=4)
    await desk.gate.enqueue(jobs(30))
    assert len(await desk.admitted()) == 4

    desk.advance(hours=1)
    await desk.gate.fire()

    assert len(await desk.admitted()) == 6


async def test_late_answers_of_the_old_window_do_not_change_the_new_one(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10, remaining=4)
    await desk.gate.enqueue(jobs(30))
    old = await desk.admitted()
    desk.advance(hours=1)
    await desk.gate.fire()
    await desk.admitted()

    await desk.settle([desk.answered(one, 10, 0) for one in old])

    assert len(await desk.admitted()) == 4


async def test_an_upstream_that_reports_the_old_window_is_believed(desk: Desk):
    """Its clock is behind ours: a call made after our end of the window still names the old one, so we wait on."""
    await desk.enrol()
    await desk.know(limit=10, remaining=0)
    await desk.gate.enqueue(jobs(30))
    desk.advance(hours=1)
    await desk.gate.fire()
    out = await desk.admitted()
    assert len(out) == 10

    await desk.settle([desk.answered(one, 10, 0) for one in out])

    assert await desk.admitted() == []
    assert await desk.gate.fire() == 1000


async def test_a_window_without_answers_ends_too(desk: Desk):
    await desk.enrol()
    await desk.know(limit=3, remaining=0)
    await desk.gate.enqueue(jobs(30))
    desk.advance(hours=1)
    await desk.gate.fire()
    await desk.settle_as(await desk.admitted(), Outcome.UNKNOWN)
    assert await desk.admitted() == []

    due_in_ms = await desk.gate.fire()
    assert due_in_ms is not None
    desk.advance(milliseconds=due_in_ms)
    await desk.gate.fire()

    assert len(await desk.admitted()) == 3


async def test_the_floor_is_never_spent(desk: Desk):
    await desk.enrol(limits=PLENTY.model_copy(update={"floor": 100}))
    await desk.know(limit=5000, remaining=130)
    await desk.gate.enqueue(jobs(200))

    assert len(await desk.admitted()) == 30


@pytest.mark.parametrize(
    ("limit", "share", "spent"),
    [(30, 0.02, 30), (60, 0.02, 59), (60, 0, 60), (60, 0.1, 54), (60, 1, 0)],
)
async def test_the_floor_of_a_small_limit_is_limited_to_a_share_of_it(desk: Desk, limit: int, share: float, spent: int):
    """30 searches a minute with a floor of 100 would never search."""
    limits = PLENTY.model_copy(update={"floor": 100, "floor_share": share})
    await desk.enrol(limits=limits)
    await desk.know(limit=limit)
    await desk.gate.enqueue(jobs(limit + 20))

    assert len(await desk.admitted()) == spent == limit - limits.floor_of(limit)


async def test_buckets_have_separate_allowances(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10, remaining=0, bucket="core")
    await desk.know(limit=10, remaining=5, bucket="search")
    await desk.gate.enqueue(jobs(5, "core") + jobs(5, "search", bucket="search"))

    assert all(name.startswith("search") for name in names(await desk.admitted()))


async def test_an_answer_may_name_another_bucket_than_assumed(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10, bucket="core")
    await desk.gate.enqueue([job("one")])
    (out,) = await desk.admitted()
    said = Allowance(limit=30, remaining=29, window=desk.window, resets_in_ms=60_000)

    await desk.settle([settlement(out, allowance=said, bucket="search")])

    assert (await left(desk, "core"), await left(desk, "search")) == (10, 29)


async def test_a_blocked_credential_is_not_used_until_the_block_ends(desk: Desk):
    """403 or 429 with retry-after: the whole credential waits, in every bucket."""
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue([job("limited")])
    (out,) = await desk.admitted()
    await desk.settle([settlement(out, blocked_ms=30_000)], follow_ups=[job("limited")])

    assert await desk.admitted() == []
    status = await desk.gate.status("octocat")
    assert status.credentials[0].blocked_in_ms == 30_000
    assert status.credentials[0].buckets[0].reason == "blocked"
    assert status.waiting == {"core": 1}

    census = await desk.gate.census()
    assert (census.blocked, census.longest_ms) == (1, 30_000)

    desk.advance(seconds=30)
    await desk.gate.fire()
    assert names(await desk.admitted()) == ["limited"]
    census = await desk.gate.census()
    assert (census.blocked, census.longest_ms) == (0, 0)


async def test_calls_of_any_minute_never_exceed_the_limit(desk: Desk):
    await desk.enrol(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await desk.know(limit=1000)
    await desk.gate.enqueue(jobs(40))
    made: list[float] = [0.0]  # the probe
    elapsed = 0.0
    while len(made) < 30:
        out = await desk.admitted()
        made += [elapsed] * len(out)
        await desk.settle([desk.answered(one, 1000, 900) for one in out])
        due_in_ms = await desk.gate.fire()
        if due_in_ms:
            elapsed += due_in_ms / 1000
            desk.advance(milliseconds=due_in_ms)
            await desk.gate.fire()

    assert max(sum(start <= at < start + 60 for at in made) for start in made) == 10


async def test_a_job_with_a_high_cost_waits_for_enough_units(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=5)
    await desk.gate.enqueue([job("query", cost=8), job("small", run="run-2")])
    assert await desk.admitted() == []

    desk.advance(hours=1)
    await desk.gate.fire()
    assert names(await desk.admitted()) == ["query", "small"]


async def test_a_job_that_costs_more_than_a_window_gets_a_full_window(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue([job("huge", cost=50)])

    assert names(await desk.admitted()) == ["huge"]


async def test_a_retired_credential_makes_no_call(desk: Desk):
    """401: the token is no good any more. Another of the pool goes on."""
    await desk.enrol("bad")
    await desk.enrol("good")
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(2, affinity="bad"))
    out = await desk.admitted()
    await desk.settle([settlement(one, retired=True) for one in out], follow_ups=jobs(2, "again", affinity="bad"))

    assert {one.credential for one in await desk.admitted()} == {"good"}
    await desk.enrol("bad")
    await desk.gate.enqueue([job("after renewal", affinity="bad")])
    assert [one.credential for one in await desk.admitted()] == ["bad"]


async def test_jobs_of_a_removed_credential_go_to_the_others(desk: Desk):
    await desk.enrol("leaving", limits=PLENTY.model_copy(update={"concurrency": 1}))
    await desk.enrol("staying")
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(3, affinity="leaving"))
    (out,) = await desk.admitted()

    await desk.gate.dismiss("leaving")

    assert {one.credential for one in await desk.admitted()} == {"staying"}
    assert (await desk.settle([desk.answered(out, 100, 98)])).settled == 1


async def test_the_state_of_a_credential_survives_a_second_registration(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=1)
    await desk.enrol(limits=CredentialLimits(concurrency=7, floor=0, window=timedelta(minutes=1)))

    assert await left(desk) == 1


async def test_headers_without_an_answer_are_refused(desk: Desk):
    await desk.enrol()
    await desk.gate.enqueue([job("one")])
    (out,) = await desk.admitted()
    said = Allowance(limit=1, remaining=1, window=1, resets_in_ms=1)
    with pytest.raises(InvalidArgument, match=r"^allowance is"):
        settlement(out, Outcome.UNKNOWN, allowance=said)
    with pytest.raises(InvalidArgument, match=r"^blocked_ms is 0"):
        settlement(out, blocked_ms=0)
    with pytest.raises(InvalidArgument, match=r"^remaining is -1"):
        Allowance(limit=1, remaining=-1, window=1, resets_in_ms=1)
