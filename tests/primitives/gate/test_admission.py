"""Jobs wait for permits, come out once, and make room for others when they are settled."""

import pytest

from tests.primitives.gate.desk import PLENTY, Desk, job, jobs, names
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import CredentialLimits, Outcome


async def test_a_job_waits_until_its_pool_has_a_credential(desk: Desk):
    await desk.gate.enqueue([job("early")])
    assert await desk.admitted() == []

    await desk.enrol()

    assert names(await desk.admitted()) == ["early"]


async def test_the_first_call_of_a_credential_is_a_single_probe(desk: Desk):
    """Nothing is known of its allowance, and unknown never means unlimited."""
    await desk.enrol()
    await desk.gate.enqueue(jobs(5))

    probe = await desk.admitted()
    assert len(probe) == 1

    await desk.settle([desk.answered(probe[0], limit=5000, remaining=4999)])
    assert len(await desk.admitted()) == 4


async def test_a_lost_probe_is_followed_by_one_probe(desk: Desk):
    await desk.enrol()
    await desk.gate.enqueue(jobs(5))
    await desk.settle_as(await desk.admitted(), Outcome.UNKNOWN)

    assert len(await desk.admitted()) == 1


async def test_enqueueing_a_job_again_has_no_effect_in_any_state(desk: Desk):
    await desk.enrol(limits=CredentialLimits(concurrency=1, floor=0))
    await desk.know(limit=100)
    three = [job("out"), job("waiting"), job("delayed", delay_ms=1000)]

    assert await desk.gate.enqueue(three) == 3
    assert await desk.gate.enqueue(three) == 0
    assert await desk.gate.enqueue([job("twice"), job("twice")]) == 1

    assert names(await desk.admitted()) == ["out"]
    assert (await desk.gate.census()).waiting == 2


async def test_a_settled_job_may_be_enqueued_again(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue([job("again")])
    (first,) = await desk.admitted()

    await desk.settle([desk.answered(first, 100, 98)], follow_ups=[job("again"), job("next page")])

    assert sorted(names(await desk.admitted())) == ["again", "next page"]


async def test_dispatched_jobs_never_exceed_the_concurrency(desk: Desk):
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 3}))
    await desk.know(limit=1000)
    await desk.gate.enqueue(jobs(10))

    out = await desk.admitted()
    assert len(out) == 3
    await desk.settle([desk.answered(out[0], 1000, 996)])
    assert len(await desk.admitted()) == 1


async def test_concurrency_is_shared_by_all_buckets_of_a_credential(desk: Desk):
    """GitHub counts REST and GraphQL calls at once together."""
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 3}))
    await desk.know(limit=1000, bucket="core")
    await desk.know(limit=1000, bucket="graphql")

    await desk.gate.enqueue(jobs(2, "rest", bucket="core") + jobs(2, "query", bucket="graphql"))

    assert len(await desk.admitted()) == 3


async def test_a_permit_is_settled_once(desk: Desk):
    """Whoever took a message over and the one who lost it may both report; the second changes nothing."""
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(3))
    (first,) = await desk.admitted()

    again = [desk.answered(first, 100, 98)]
    assert (await desk.settle(again)).settled == 1
    late = await desk.settle(again)

    assert (late.settled, late.stale, late.dispatched) == (0, 1, 0)
    assert len(await desk.admitted()) == 1


async def test_a_late_settlement_does_not_end_a_job_that_was_enqueued_again(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue([job("page")])
    (first,) = await desk.admitted()
    await desk.settle([desk.answered(first, 100, 98)], follow_ups=[job("page")])

    await desk.settle([desk.answered(first, 100, 98)])

    assert await desk.gate.enqueue([job("page")]) == 0
    assert (await desk.gate.status("octocat")).credentials[0].in_flight == 1


async def test_a_settled_message_is_deleted_from_the_stream(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(3))
    out = await desk.admitted()
    await desk.settle([desk.answered(one, 100, 90) for one in out])

    assert await desk.valkey.execute("XLEN", desk.stream) == 0
    assert (await desk.valkey.execute("XPENDING", desk.stream, "workers"))["pending"] == 0


async def test_an_unused_permit_costs_nothing(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=1)
    for n in range(5):
        await desk.gate.enqueue([job(f"finished already {n}")])
        assert (await desk.settle_as(await desk.admitted(), Outcome.UNUSED)).settled == 1


async def test_a_delayed_job_is_dispatched_when_it_is_due_and_not_before(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue([job("later", delay_ms=2000)])

    assert await desk.gate.fire() == 2000
    desk.advance(milliseconds=1999)
    assert await desk.gate.fire() == 1
    assert await desk.admitted() == []

    desk.advance(milliseconds=1)
    assert await desk.gate.fire() is None
    assert names(await desk.admitted()) == ["later"]


async def test_the_wake_up_signal_is_sent_when_an_earlier_time_is_planned(desk: Desk):
    await desk.gate.enqueue([job("in ten seconds", delay_ms=10_000)])
    assert await desk.valkey.execute("LPOP", desk.wake) == b"1"

    await desk.gate.enqueue([job("in twenty seconds", delay_ms=20_000)])
    assert await desk.valkey.execute("LPOP", desk.wake) is None

    await desk.gate.enqueue([job("in five seconds", delay_ms=5_000)])
    assert await desk.valkey.execute("LPOP", desk.wake) == b"1"


async def test_removed_jobs_are_not_dispatched(desk: Desk):
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await desk.know(limit=100)
    await desk.gate.enqueue([job("out"), job("waiting"), job("delayed", delay_ms=10), job("kept")])
    (out,) = await desk.admitted()

    assert await desk.gate.forget(["out", "waiting", "delayed", "never seen"]) == 2

    desk.advance(seconds=1)
    await desk.gate.fire()
    await desk.settle([desk.answered(out, 100, 98)])
    assert names(await desk.admitted()) == ["kept"]


async def test_jobs_beyond_the_batch_size_are_dispatched_by_the_next_tick(desk: Desk):
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 2000}))
    await desk.know(limit=5000)
    await desk.gate.enrol("token", pool="octocat", limits=PLENTY.model_copy(update={"concurrency": 1}))
    await desk.gate.enqueue(jobs(1500))
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 2000}))

    await desk.gate.fire()

    assert len(await desk.admitted()) == 1500


async def test_no_key_is_left_when_all_jobs_are_done(desk: Desk):
    await desk.enrol()
    await desk.know(limit=1000)
    await desk.gate.enqueue(jobs(50) + jobs(20, "other", run="run-2"))
    await desk.settle([desk.answered(one, 1000, 900) for one in await desk.admitted()])

    for part in ("gate:waiting", "gate:jobs", "gate:due"):
        assert await desk.valkey.execute("EXISTS", desk.unit.key(part)) == 0, part
    assert await desk.valkey.execute("HLEN", desk.unit.key("gate:permits")) == 1  # the counter
    assert await desk.valkey.execute("HLEN", desk.unit.key("gate:turns")) == 1  # the pool's turn


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"job": ""}, "job"),
        ({"pool": "a|b"}, "pool"),
        ({"run": "x" * 600}, "run"),
        ({"cost": 0}, "cost"),
        ({"cost": -3}, "cost"),
        ({"priority": 10}, "priority"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"bucket": "new\nline"}, "bucket"),
    ],
)
def test_an_invalid_job_is_refused_by_name(changes: dict[str, object], named: str):
    with pytest.raises(InvalidArgument, match=f"^{named} is"):
        job("fine", **changes)


async def test_a_credential_belongs_to_one_pool(desk: Desk):
    await desk.enrol("token", pool="octocat")
    with pytest.raises(InvalidArgument, match="belongs to the pool 'octocat'"):
        await desk.enrol("token", pool="hubot")
