"""Corners where a job could wait for ever, a permit leak, or a limit be forgotten."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import Allowance, Job, Outcome, scripts, settlement
from tidegate.primitives.stream import Stream

ONE_AT_A_TIME = PLENTY.model_copy(update={"concurrency": 1})


async def test_an_ended_call_frees_a_slot_in_every_bucket(harness: GateHarness):
    """Calls at once are counted for all buckets together; nobody else would wake the other one."""
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.gate.enqueue([job("rest", bucket="core"), job("search", bucket="search")])
    (rest,) = await harness.admitted()

    await harness.settle([harness.answered(rest, 100, 99)])

    assert names(await harness.admitted()) == ["search"]


async def test_an_answer_without_remaining_units_counts_as_spent(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(200))
    made = 0
    while out := await harness.admitted():
        made += len(out)
        await harness.settle([settlement(one) for one in out])

    assert made == 10


async def test_a_retired_credential_may_be_registered_in_another_pool(harness: GateHarness):
    await harness.register("token", pool="ada")
    await harness.register("other", pool="ada")
    await harness.gate.enqueue([job("probe", pool="ada", affinity="token")])
    (probe,) = await harness.admitted()
    await harness.gate.enqueue(jobs(3, "bound", pool="ada", affinity="token"))
    await harness.settle([settlement(probe, retired=True)])

    await harness.register("token", pool="bob")
    await harness.gate.enqueue(jobs(3, "adas", pool="ada") + jobs(1, "bobs", pool="bob"))

    assert {one.credential for one in await harness.admitted() if one.job.startswith(("adas", "bound"))} <= {"other"}
    assert [one.name for one in (await harness.gate.status("ada")).credentials] == ["other"]


async def test_a_job_with_a_high_cost_behind_a_lost_call_does_not_wait_forever(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    harness.advance(seconds=3598)
    await harness.settle_as(await harness.admitted(), Outcome.UNKNOWN)
    harness.advance(seconds=5)
    await harness.gate.enqueue([job("big", cost=10), job("small", run="run-2")])
    assert await harness.admitted() == []

    due_in_ms = await harness.gate.fire()
    assert due_in_ms is not None
    harness.advance(milliseconds=due_in_ms)
    await harness.gate.fire()

    assert names(await harness.admitted()) == ["big"]


async def test_an_interrupted_removal_of_a_credential_leaves_no_job_behind(harness: GateHarness):
    await harness.register("leaving", limits=ONE_AT_A_TIME)
    await harness.register("staying", limits=PLENTY.model_copy(update={"concurrency": 10_000}))
    await harness.set_allowance(limit=5000)
    await harness.gate.enqueue(jobs(700, affinity="leaving"))
    out = await harness.admitted()
    assert len(out) == 1
    await scripts.dismiss(
        harness.valkey,
        credential="leaving",
        now_ms=harness.clock.pinned_ms,
        **harness.gate._keys,  # pyright: ignore[reportPrivateUsage]
    )

    await harness.gate.fire()
    await harness.settle([harness.answered(out[0], 5000, 4000)])
    while (due_in_ms := await harness.gate.fire()) is not None and due_in_ms < 1000:
        harness.advance(milliseconds=due_in_ms)

    assert len(await harness.admitted()) == 699


async def test_a_removed_credential_is_deleted_with_its_last_call(harness: GateHarness):
    await harness.register()
    await harness.gate.enqueue(jobs(1))
    (out,) = await harness.admitted()
    await harness.gate.dismiss("token")
    assert await harness.valkey.execute("HLEN", harness.unit.key("gate:credentials")) == 2

    await harness.settle([harness.answered(out, 10, 9)])

    assert await harness.valkey.execute("EXISTS", harness.unit.key("gate:credentials")) == 0


async def test_a_message_without_a_permit_does_not_end_the_permit_of_another(harness: GateHarness):
    """A dead letter of the gate's stream that somebody replays, long after its permit was freed."""
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("poison")])
    (poison,) = await harness.admitted()
    stream = Stream(harness.valkey, harness.unit, "jobs")
    await stream.fail("consumer", [poison.message], "it kills")
    await harness.gate.rebuild(_no_pages())
    await harness.gate.enqueue([job("poison"), job("next")])
    assert len(await harness.admitted()) == 1
    (letter,) = (await stream.dead_letters.page()).letters
    await stream.dead_letters.replay([letter.id])
    (replayed,) = await harness.admitted()

    await harness.settle([harness.answered(replayed, 100, 90)])

    assert await harness.admitted() == []
    assert (await harness.gate.status("octocat")).credentials[0].in_flight == 1


async def test_removing_a_job_with_a_high_cost_lets_the_next_one_proceed(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=5)
    await harness.gate.enqueue([job("big", cost=20)])
    await harness.gate.enqueue([job("small", run="run-2")])

    await harness.gate.forget(["big"])

    assert names(await harness.admitted()) == ["small"]


async def test_lost_calls_count_no_longer_than_the_window_of_the_upstream(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(9))
    out = await harness.admitted()
    await harness.settle_as(out[:8], Outcome.UNKNOWN)
    harness.advance(minutes=30)

    await harness.settle([harness.answered(out[8], 10, 9, window=harness.window + 1800)])
    await harness.gate.enqueue(jobs(30, "next"))

    assert len(await harness.admitted()) == 9


async def test_the_call_of_a_dead_worker_counts_in_addition_to_that_of_its_successor(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    await harness.admitted()
    await harness.take_over()
    (heir,) = await harness.admitted()

    await harness.settle([settlement(msgspec.structs.replace(heir, deliveries=2), Outcome.UNUSED)])

    assert (await harness.gate.status("octocat")).credentials[0].buckets[0].lost == 1


async def test_the_same_result_twice_in_a_batch_counts_once(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    (out,) = await harness.admitted()

    done = await harness.settle([harness.answered(out, 10, 9)] * 3)

    assert (done.settled, done.stale) == (1, 2)
    assert (await harness.gate.status("octocat")).credentials[0].buckets[0].lost == 0


async def test_more_follow_ups_than_the_batch_size_are_all_enqueued(harness: GateHarness):
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 5000}))
    await harness.set_allowance(limit=5000)
    await harness.gate.enqueue(jobs(1))
    (out,) = await harness.admitted()

    done = await harness.settle([harness.answered(out, 5000, 4999)], follow_ups=jobs(1700, "page"))

    assert done.entered == 1700
    await harness.gate.fire()
    assert len(await harness.admitted()) == 1700


async def test_the_status_of_a_pool_can_be_read_repeatedly(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10, remaining=0)
    await harness.gate.enqueue(jobs(3))
    harness.advance(hours=1)

    assert await harness.gate.open("octocat") == 3


async def test_a_queue_position_without_a_record_blocks_no_job(harness: GateHarness):
    """Somebody deleted a field by hand; the job is gone, and the others go on."""
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("out"), job("gone"), job("next", run="run-2"), job("last", run="run-3")])
    await harness.valkey.execute("HDEL", harness.unit.key("gate:jobs"), "gone")
    done: list[str] = []
    while out := await harness.admitted():
        done += names(out)
        await harness.settle([harness.answered(one, 100, 90) for one in out])

    assert sorted(done) == ["last", "next", "out"]


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 2.5},
        {"priority": True},
        {"cost": 1.5},
        {"cost": float("inf")},
        {"cost": 10**17},
        {"delay_ms": 10**17},
        {"affinity": "a|b"},
        {"payload": "x" * 70_000},
    ],
)
def test_values_that_would_corrupt_the_queue_are_refused(changes: dict[str, object]):
    with pytest.raises(InvalidArgument, match=rf"^{next(iter(changes))} is"):
        job("fine", **changes)


def test_an_invalid_allowance_is_refused():
    with pytest.raises(InvalidArgument, match=r"^resets_in_ms is"):
        Allowance(limit=1, remaining=1, window=1, resets_in_ms=10**18)
    with pytest.raises(InvalidArgument, match=r"^remaining is 0\.5"):
        Allowance(limit=1, remaining=0.5, window=1, resets_in_ms=1)  # pyright: ignore[reportArgumentType]


async def _no_pages() -> AsyncIterator[list[Job]]:
    for page in list[list[Job]]():
        yield page
