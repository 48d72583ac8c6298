"""Who goes first: the class, then the turn; who gets which credential."""

from tests.primitives.gate.desk import PLENTY, Desk, job, jobs, names
from tidegate.primitives.gate import settlement

ONE_AT_A_TIME = PLENTY.model_copy(update={"concurrency": 1})


async def drain(desk: Desk, most: int) -> list[str]:
    order: list[str] = []
    while len(order) < most and (out := await desk.admitted()):
        order += names(out)
        await desk.settle([desk.answered(one, 1_000_000, 900_000) for one in out])
    return order


async def test_a_run_with_one_job_does_not_wait_for_a_run_with_thousands(desk: Desk):
    await desk.enrol(limits=ONE_AT_A_TIME)
    await desk.know(limit=1_000_000)
    await desk.gate.enqueue(jobs(3000, "big", run="big"))
    await drain(desk, 100)

    await desk.gate.enqueue([job("small", run="small")])

    assert "small" in await drain(desk, 3)


async def test_a_new_run_with_many_jobs_does_not_delay_the_others(desk: Desk):
    await desk.enrol(limits=ONE_AT_A_TIME)
    await desk.know(limit=1_000_000)
    await desk.gate.enqueue(jobs(300, "old", run="old"))
    await drain(desk, 100)

    await desk.gate.enqueue(jobs(100, "new", run="new"))

    assert sum(name.startswith("old") for name in await drain(desk, 20)) in (9, 10, 11)


async def test_runs_are_served_round_robin(desk: Desk):
    await desk.enrol(limits=ONE_AT_A_TIME)
    await desk.know(limit=1_000_000)
    await desk.gate.enqueue([job("holds the only permit", run="z")])
    for run in ("a", "b", "c"):
        await desk.gate.enqueue(jobs(4, run, run=run))
    order = await drain(desk, 13)

    assert ["".join(sorted(name[0] for name in order[n : n + 3])) for n in (1, 4, 7, 10)] == ["abc"] * 4


async def test_removing_a_large_run_gives_no_run_an_advantage(desk: Desk):
    await desk.enrol(limits=ONE_AT_A_TIME)
    await desk.know(limit=1_000_000)
    await desk.gate.enqueue([job("holds the only permit", run="z")])
    await desk.gate.enqueue(jobs(400, "other", run="other"))
    big = jobs(2000, "big", run="big")
    await desk.gate.enqueue(big)
    await desk.gate.forget([one.job for one in big])

    await desk.gate.enqueue([job("newcomer", run="newcomer")])

    assert "newcomer" in await drain(desk, 4)


async def test_a_higher_priority_is_dispatched_first(desk: Desk):
    await desk.enrol(limits=ONE_AT_A_TIME)
    await desk.know(limit=100)
    await desk.gate.enqueue([job("out")])
    await desk.gate.enqueue([job("background", priority=9), job("normal"), job("urgent", priority=0)])

    assert await drain(desk, 4) == ["out", "urgent", "normal", "background"]


async def test_one_pool_never_blocks_another(desk: Desk):
    await desk.enrol("t1", pool="exhausted")
    await desk.enrol("t2", pool="free")
    await desk.know(limit=10, remaining=0, pool="exhausted")
    await desk.know(limit=10, pool="free")

    await desk.gate.enqueue(jobs(50, "stuck", pool="exhausted") + jobs(3, "goes", pool="free"))

    assert names(await desk.admitted()) == ["goes-00000", "goes-00001", "goes-00002"]


async def test_pools_with_a_common_name_prefix_are_separate(desk: Desk):
    await desk.enrol("t1", pool="octo")
    await desk.know(limit=10, pool="octo")

    await desk.gate.enqueue([job("not ours", pool="octocat")])

    assert await desk.admitted() == []


async def test_a_job_gets_the_credential_it_had_before(desk: Desk):
    """ETags belong to one token: with another one, an unchanged page costs a call."""
    for credential in ("a", "b", "c"):
        await desk.enrol(credential)
    await desk.know(limit=100)
    wanted = {f"page-{n}": "abc"[n % 3] for n in range(30)}
    await desk.gate.enqueue([job(name, affinity=credential) for name, credential in wanted.items()])

    assert {one.job: one.credential for one in await desk.admitted()} == wanted


async def test_a_job_waits_briefly_for_its_credential_and_no_longer_than_its_patience(desk: Desk):
    await desk.enrol("mine", limits=PLENTY)
    await desk.enrol("other", limits=PLENTY)
    await desk.know(limit=100)
    await desk.gate.enqueue([job("first", affinity="mine")])
    (out,) = await desk.admitted()
    await desk.settle([settlement(out, blocked_ms=59_000)])

    await desk.gate.enqueue([job("patient", affinity="mine")])
    assert await desk.admitted() == []

    desk.advance(seconds=1)
    await desk.gate.enqueue([job("again", affinity="mine")])
    desk.advance(seconds=58)
    await desk.gate.fire()
    assert {one.credential for one in await desk.admitted()} == {"mine"}


async def test_a_job_takes_another_credential_when_its_own_is_blocked_for_long(desk: Desk):
    await desk.enrol("mine", limits=PLENTY)
    await desk.enrol("other", limits=PLENTY)
    await desk.know(limit=100)
    await desk.gate.enqueue([job("first", affinity="mine")])
    (out,) = await desk.admitted()
    await desk.settle([settlement(out, blocked_ms=600_000)])

    await desk.gate.enqueue([job("impatient", affinity="mine")])

    assert [one.credential for one in await desk.admitted()] == ["other"]


async def test_bound_and_unbound_jobs_of_a_credential_take_turns(desk: Desk):
    await desk.enrol("mine", limits=ONE_AT_A_TIME)
    await desk.know(limit=1000)
    await desk.gate.enqueue([job("out", run="z")])
    await desk.gate.enqueue(jobs(3, "bound", run="a", affinity="mine") + jobs(3, "free", run="b"))

    order = await drain(desk, 7)

    assert [sorted(name[0] for name in order[n : n + 2]) for n in (1, 3, 5)] == [["b", "f"]] * 3
