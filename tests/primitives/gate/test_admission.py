"""Jobs wait for permits, come out once, and make room for others when they are settled."""

import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import CredentialLimits, Outcome


async def test_a_job_waits_until_its_pool_has_a_credential(harness: GateHarness):
    await harness.gate.enqueue([job("early")])
    assert await harness.admitted() == []

    await harness.register()

    assert names(await harness.admitted()) == ["early"]


async def test_the_first_call_of_a_credential_is_a_single_probe(harness: GateHarness):
    """Nothing is known of its allowance, and unknown never means unlimited."""
    await harness.register()
    await harness.gate.enqueue(jobs(5))

    probe = await harness.admitted()
    assert len(probe) == 1

    await harness.settle([harness.answered(probe[0], limit=5000, remaining=4999)])
    assert len(await harness.admitted()) == 4


async def test_a_lost_probe_is_followed_by_one_probe(harness: GateHarness):
    await harness.register()
    await harness.gate.enqueue(jobs(5))
    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)

    assert len(await harness.admitted()) == 1


async def test_enqueueing_a_job_again_has_no_effect_in_any_state(harness: GateHarness):
    await harness.register(limits=CredentialLimits(concurrency=1, floor=0))
    await harness.set_allowance(limit=100)
    three = [job("out"), job("waiting"), job("delayed", delay_ms=1000)]

    assert await harness.gate.enqueue(three) == 3
    assert await harness.gate.enqueue(three) == 0
    assert await harness.gate.enqueue([job("twice"), job("twice")]) == 1

    assert names(await harness.admitted()) == ["out"]
    assert (await harness.gate.shard_status()).waiting == 2


async def test_a_settled_job_may_be_enqueued_again(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("again")])
    (first,) = await harness.admitted()

    await harness.settle([harness.answered(first, 100, 98)], follow_ups=[job("again"), job("next page")])

    assert sorted(names(await harness.admitted())) == ["again", "next page"]


async def test_dispatched_jobs_never_exceed_the_concurrency(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 3}))
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue(jobs(10))

    out = await harness.admitted()
    assert len(out) == 3
    await harness.settle([harness.answered(out[0], 1000, 996)])
    assert len(await harness.admitted()) == 1


async def test_concurrency_is_shared_by_all_buckets_of_a_credential(harness: GateHarness):
    """GitHub counts REST and GraphQL calls at once together."""
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 3}))
    await harness.set_allowance(limit=1000, bucket="core")
    await harness.set_allowance(limit=1000, bucket="graphql")

    await harness.gate.enqueue(jobs(2, "rest", bucket="core") + jobs(2, "query", bucket="graphql"))

    assert len(await harness.admitted()) == 3


async def test_a_permit_is_settled_once(harness: GateHarness):
    """Whoever took a message over and the one who lost it may both report; the second changes nothing."""
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(3))
    (first,) = await harness.admitted()

    again = [harness.answered(first, 100, 98)]
    assert (await harness.settle(again)).settled == 1
    late = await harness.settle(again)

    assert (late.settled, late.stale, late.dispatched) == (0, 1, 0)
    assert len(await harness.admitted()) == 1


async def test_a_late_settlement_does_not_end_a_job_that_was_enqueued_again(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("page")])
    (first,) = await harness.admitted()
    await harness.settle([harness.answered(first, 100, 98)], follow_ups=[job("page")])

    await harness.settle([harness.answered(first, 100, 98)])

    assert await harness.gate.enqueue([job("page")]) == 0
    assert (await harness.gate.status("octocat")).credentials[0].in_flight == 1


async def test_a_settled_message_is_deleted_from_the_stream(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(3))
    out = await harness.admitted()
    await harness.settle([harness.answered(one, 100, 90) for one in out])

    assert await harness.valkey.execute("XLEN", harness.stream) == 0
    assert (await harness.valkey.execute("XPENDING", harness.stream, "workers"))["pending"] == 0


async def test_an_unused_permit_costs_nothing(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=1)
    for n in range(5):
        await harness.gate.enqueue([job(f"finished already {n}")])
        assert (await harness.settle_as(await harness.admitted(), Outcome.UNUSED)).settled == 1


async def test_a_delayed_job_is_dispatched_when_it_is_due_and_not_before(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("later", delay_ms=2000)])

    assert await harness.gate.fire() == 2000
    harness.advance(milliseconds=1999)
    assert await harness.gate.fire() == 1
    assert await harness.admitted() == []

    harness.advance(milliseconds=1)
    assert await harness.gate.fire() is None
    assert names(await harness.admitted()) == ["later"]


async def test_the_wake_up_signal_is_sent_when_an_earlier_time_is_planned(harness: GateHarness):
    await harness.gate.enqueue([job("in ten seconds", delay_ms=10_000)])
    assert await harness.valkey.execute("LPOP", harness.wake) == b"1"

    await harness.gate.enqueue([job("in twenty seconds", delay_ms=20_000)])
    assert await harness.valkey.execute("LPOP", harness.wake) is None

    await harness.gate.enqueue([job("in five seconds", delay_ms=5_000)])
    assert await harness.valkey.execute("LPOP", harness.wake) == b"1"


async def test_removed_jobs_are_not_dispatched(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("out"), job("waiting"), job("delayed", delay_ms=10), job("kept")])
    (out,) = await harness.admitted()

    assert await harness.gate.forget(["out", "waiting", "delayed", "never seen"]) == 2

    harness.advance(seconds=1)
    await harness.gate.fire()
    await harness.settle([harness.answered(out, 100, 98)])
    assert names(await harness.admitted()) == ["kept"]


async def test_jobs_beyond_the_batch_size_are_dispatched_by_the_next_tick(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 2000}))
    await harness.set_allowance(limit=5000)
    await harness.gate.register("token", pool="octocat", limits=PLENTY.model_copy(update={"concurrency": 1}))
    await harness.gate.enqueue(jobs(1500))
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 2000}))

    await harness.gate.fire()

    assert len(await harness.admitted()) == 1500


async def test_no_key_is_left_when_all_jobs_are_done(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue(jobs(50) + jobs(20, "other", run="run-2"))
    await harness.settle([harness.answered(one, 1000, 900) for one in await harness.admitted()])

    for part in ("gate:waiting", "gate:jobs", "gate:due"):
        assert await harness.valkey.execute("EXISTS", harness.unit.key(part)) == 0, part
    assert await harness.valkey.execute("HLEN", harness.unit.key("gate:permits")) == 2  # the counter and the padding
    assert await harness.valkey.execute("HLEN", harness.unit.key("gate:turns")) == 1  # the pool's turn


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


async def test_a_credential_belongs_to_one_pool(harness: GateHarness):
    await harness.register("token", pool="octocat")
    with pytest.raises(InvalidArgument, match="belongs to the pool 'octocat'"):
        await harness.register("token", pool="hubot")


async def test_permits_are_stored_in_a_table_from_the_first_one(harness: GateHarness):
    """The server scans a small hash for each field, and hundreds of calls may be in flight."""
    await harness.register("one")

    assert await harness.valkey.execute("OBJECT", "ENCODING", harness.unit.key("gate:permits")) == b"hashtable"
