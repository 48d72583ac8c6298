"""Whatever is lost, offering everything unfinished repairs it."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from tests.primitives.gate.desk import PLENTY, Desk, jobs, names
from tidegate.primitives.gate import Job


async def pages(*of: Sequence[Job]) -> AsyncIterator[Sequence[Job]]:
    for page in of:
        yield page


async def test_an_empty_server_is_reported_until_it_was_rebuilt(desk: Desk):
    """Whoever notices may die before it has repaired anything."""
    assert await desk.gate.needs_rebuild()
    assert await desk.gate.needs_rebuild()

    await desk.gate.rebuild(pages())
    assert not await desk.gate.needs_rebuild()

    await desk.valkey.execute("DEL", desk.unit.key("gate:epoch"))
    assert await desk.gate.needs_rebuild()


async def test_rebuilding_after_a_flush_dispatches_every_job_once(desk: Desk):
    await desk.enrol()
    await desk.know(limit=1000)
    unfinished = jobs(40)
    await desk.gate.enqueue(unfinished)
    before = await desk.admitted(10)
    await desk.settle([desk.answered(one, 1000, 900) for one in before])
    for part in ("waiting", "turns", "jobs", "permits", "credentials", "pools", "due"):
        await desk.valkey.execute("DEL", desk.unit.key(f"gate:{part}"))
    await desk.valkey.execute("DEL", desk.stream)

    await desk.prepare()
    await desk.enrol()
    rest = unfinished[10:]
    assert await desk.gate.rebuild(pages(rest[:20], rest[20:])) == 30

    (probe,) = await desk.admitted()
    await desk.settle([desk.answered(probe, 1000, 899)])
    assert sorted([*names([probe]), *names(await desk.admitted())]) == [one.job for one in rest]


async def test_rebuilding_an_intact_gate_changes_nothing(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    all_jobs = jobs(25)
    await desk.gate.enqueue(all_jobs)
    out = await desk.admitted(5)

    assert await desk.gate.rebuild(pages(all_jobs)) == 0

    assert len(out) + len(await desk.admitted()) == 10
    assert (await desk.gate.status("octocat")).credentials[0].in_flight == 10


async def test_a_permit_whose_message_vanished_is_freed_and_its_job_enqueued_again(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(3))
    lost, *_ = await desk.admitted()
    await desk.valkey.execute("XDEL", desk.stream, lost.message)

    assert await desk.gate.rebuild(pages(jobs(3))) == 1

    assert names(await desk.admitted()) == [lost.job]
    status = await desk.gate.status("octocat")
    assert status.credentials[0].in_flight == 3
    assert status.credentials[0].buckets[0].lost == 1  # it counts as spent


async def test_a_message_taken_over_under_a_new_id_keeps_its_permit(desk: Desk):
    await desk.enrol()
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(1))
    (taken,) = await desk.admitted()
    await desk.take_over()

    assert await desk.gate.rebuild(pages(jobs(1))) == 0
    (heir,) = await desk.admitted()
    assert heir.permit == taken.permit
    assert (await desk.settle([desk.answered(heir, 10, 8)])).settled == 1
    assert (await desk.settle([desk.answered(taken, 10, 8)])).stale == 1


async def test_a_worker_that_lost_its_message_does_not_end_the_permit_of_its_successor(desk: Desk):
    """It was frozen and wakes: its call is spent, its result changes nothing else."""
    await desk.enrol(limits=PLENTY.model_copy(update={"concurrency": 1}))
    await desk.know(limit=10)
    await desk.gate.enqueue(jobs(3))
    (taken,) = await desk.admitted()
    await desk.take_over()
    (heir,) = await desk.admitted()

    late = await desk.settle([desk.answered(taken, 10, 9)])

    assert (late.settled, late.stale, late.dispatched) == (0, 1, 0)
    (credential,) = (await desk.gate.status("octocat")).credentials
    assert (credential.in_flight, credential.buckets[0].lost) == (1, 1)
    assert await desk.gate.enqueue(jobs(1)) == 0
    assert (await desk.settle([desk.answered(heir, 10, 8)])).settled == 1


async def test_a_settlement_from_before_a_flush_ends_no_permit(desk: Desk):
    """Permits and messages are numbered anew, and within one millisecond both numbers may be somebody else's."""
    await desk.enrol()
    await desk.gate.enqueue(jobs(1))
    (old,) = await desk.admitted()
    await desk.valkey.execute("FLUSHALL")
    await desk.prepare()
    await desk.enrol()
    await desk.gate.enqueue(jobs(5, "new"))
    (new,) = await desk.admitted()
    assert new.permit == old.permit
    twins = [
        msgspec.structs.replace(old, message=new.message),
        msgspec.structs.replace(old, message=new.message, permit="99"),
    ]

    for twin in (old, *twins):
        assert (await desk.settle([desk.answered(twin, 10, 9)])).settled == 0

    assert (await desk.settle([desk.answered(new, 10, 8)])).settled == 1
    assert len(await desk.admitted()) == 4
