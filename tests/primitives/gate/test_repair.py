"""Whatever is lost, offering everything unfinished repairs it."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from tests.primitives.gate.harness import PLENTY, GateHarness, jobs, names
from tidegate.primitives.gate import Job


async def pages(*of: Sequence[Job]) -> AsyncIterator[Sequence[Job]]:
    for page in of:
        yield page


async def test_an_empty_server_is_reported_until_it_was_rebuilt(harness: GateHarness):
    """Whoever notices may die before it has repaired anything."""
    assert await harness.gate.needs_rebuild()
    assert await harness.gate.needs_rebuild()

    await harness.gate.rebuild(pages())
    assert not await harness.gate.needs_rebuild()

    await harness.valkey.execute("DEL", harness.unit.key("gate:epoch"))
    assert await harness.gate.needs_rebuild()


async def test_rebuilding_after_a_flush_dispatches_every_job_once(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=1000)
    unfinished = jobs(40)
    await harness.gate.enqueue(unfinished)
    before = await harness.admitted(10)
    await harness.settle([harness.answered(one, 1000, 900) for one in before])
    for part in ("waiting", "turns", "jobs", "permits", "credentials", "pools", "due"):
        await harness.valkey.execute("DEL", harness.unit.key(f"gate:{part}"))
    await harness.valkey.execute("DEL", harness.stream)

    await harness.prepare()
    await harness.register()
    rest = unfinished[10:]
    assert await harness.gate.rebuild(pages(rest[:20], rest[20:])) == 30

    (probe,) = await harness.admitted()
    await harness.settle([harness.answered(probe, 1000, 899)])
    assert sorted([*names([probe]), *names(await harness.admitted())]) == [one.job for one in rest]


async def test_rebuilding_an_intact_gate_changes_nothing(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    all_jobs = jobs(25)
    await harness.gate.enqueue(all_jobs)
    out = await harness.admitted(5)

    assert await harness.gate.rebuild(pages(all_jobs)) == 0

    assert len(out) + len(await harness.admitted()) == 10
    assert (await harness.gate.status("octocat")).credentials[0].in_flight == 10


async def test_a_permit_whose_message_vanished_is_freed_and_its_job_enqueued_again(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(3))
    lost, *_ = await harness.admitted()
    await harness.valkey.execute("XDEL", harness.stream, lost.message)

    assert await harness.gate.rebuild(pages(jobs(3))) == 1

    assert names(await harness.admitted()) == [lost.job]
    status = await harness.gate.status("octocat")
    assert status.credentials[0].in_flight == 3
    assert status.credentials[0].buckets[0].lost == 1  # it counts as spent


async def test_a_message_taken_over_under_a_new_id_keeps_its_permit(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(1))
    (taken,) = await harness.admitted()
    await harness.take_over()

    assert await harness.gate.rebuild(pages(jobs(1))) == 0
    (heir,) = await harness.admitted()
    assert heir.permit == taken.permit
    assert (await harness.settle([harness.answered(heir, 10, 8)])).settled == 1
    assert (await harness.settle([harness.answered(taken, 10, 8)])).stale == 1


async def test_a_worker_that_lost_its_message_does_not_end_the_permit_of_its_successor(harness: GateHarness):
    """It was frozen and wakes: its call is spent, its result changes nothing else."""
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await harness.set_allowance(limit=10)
    await harness.gate.enqueue(jobs(3))
    (taken,) = await harness.admitted()
    await harness.take_over()
    (heir,) = await harness.admitted()

    late = await harness.settle([harness.answered(taken, 10, 9)])

    assert (late.settled, late.stale, late.dispatched) == (0, 1, 0)
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.in_flight, credential.buckets[0].lost) == (1, 1)
    assert await harness.gate.enqueue(jobs(1)) == 0
    assert (await harness.settle([harness.answered(heir, 10, 8)])).settled == 1


async def test_a_settlement_from_before_a_flush_ends_no_permit(harness: GateHarness):
    """Permits and messages are numbered anew, and within one millisecond both numbers may be somebody else's."""
    await harness.register()
    await harness.gate.enqueue(jobs(1))
    (old,) = await harness.admitted()
    await harness.valkey.execute("FLUSHALL")
    await harness.prepare()
    await harness.register()
    await harness.gate.enqueue(jobs(5, "new"))
    (new,) = await harness.admitted()
    assert new.permit == old.permit
    twins = [
        msgspec.structs.replace(old, message=new.message),
        msgspec.structs.replace(old, message=new.message, permit="99"),
    ]

    for twin in (old, *twins):
        assert (await harness.settle([harness.answered(twin, 10, 9)])).settled == 0

    assert (await harness.settle([harness.answered(new, 10, 8)])).settled == 1
    assert len(await harness.admitted()) == 4
