"""Who goes first: the class, then the turn; who gets which credential."""

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tidegate.primitives.gate import settlement

ONE_AT_A_TIME = PLENTY.model_copy(update={"concurrency": 1})


async def drain(harness: GateHarness, most: int) -> list[str]:
    order: list[str] = []
    while len(order) < most and (out := await harness.admitted()):
        order += names(out)
        await harness.settle([harness.answered(one, 1_000_000, 900_000) for one in out])
    return order


async def test_a_run_with_one_job_does_not_wait_for_a_run_with_thousands(harness: GateHarness):
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=1_000_000)
    await harness.gate.enqueue(jobs(3000, "big", run="big"))
    await drain(harness, 100)

    await harness.gate.enqueue([job("small", run="small")])

    assert "small" in await drain(harness, 3)


async def test_a_new_run_with_many_jobs_does_not_delay_the_others(harness: GateHarness):
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=1_000_000)
    await harness.gate.enqueue(jobs(300, "old", run="old"))
    await drain(harness, 100)

    await harness.gate.enqueue(jobs(100, "new", run="new"))

    assert sum(name.startswith("old") for name in await drain(harness, 20)) in (9, 10, 11)


async def test_runs_are_served_round_robin(harness: GateHarness):
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=1_000_000)
    await harness.gate.enqueue([job("holds the only permit", run="z")])
    for run in ("a", "b", "c"):
        await harness.gate.enqueue(jobs(4, run, run=run))
    order = await drain(harness, 13)

    assert ["".join(sorted(name[0] for name in order[n : n + 3])) for n in (1, 4, 7, 10)] == ["abc"] * 4


async def test_removing_a_large_run_gives_no_run_an_advantage(harness: GateHarness):
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=1_000_000)
    await harness.gate.enqueue([job("holds the only permit", run="z")])
    await harness.gate.enqueue(jobs(400, "other", run="other"))
    big = jobs(2000, "big", run="big")
    await harness.gate.enqueue(big)
    await harness.gate.forget([one.job for one in big])

    await harness.gate.enqueue([job("newcomer", run="newcomer")])

    assert "newcomer" in await drain(harness, 4)


async def test_a_higher_priority_is_dispatched_first(harness: GateHarness):
    await harness.register(limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("out")])
    await harness.gate.enqueue([job("background", priority=9), job("normal"), job("urgent", priority=0)])

    assert await drain(harness, 4) == ["out", "urgent", "normal", "background"]


async def test_one_pool_never_blocks_another(harness: GateHarness):
    await harness.register("t1", pool="exhausted")
    await harness.register("t2", pool="free")
    await harness.set_allowance(limit=10, remaining=0, pool="exhausted")
    await harness.set_allowance(limit=10, pool="free")

    await harness.gate.enqueue(jobs(50, "stuck", pool="exhausted") + jobs(3, "goes", pool="free"))

    assert names(await harness.admitted()) == ["goes-00000", "goes-00001", "goes-00002"]


async def test_pools_with_a_common_name_prefix_are_separate(harness: GateHarness):
    await harness.register("t1", pool="octo")
    await harness.set_allowance(limit=10, pool="octo")

    await harness.gate.enqueue([job("not ours", pool="octocat")])

    assert await harness.admitted() == []


async def test_a_job_gets_the_credential_it_had_before(harness: GateHarness):
    """ETags belong to one token: with another one, an unchanged page costs a call."""
    for credential in ("a", "b", "c"):
        await harness.register(credential)
    await harness.set_allowance(limit=100)
    wanted = {f"page-{n}": "abc"[n % 3] for n in range(30)}
    await harness.gate.enqueue([job(name, affinity=credential) for name, credential in wanted.items()])

    assert {one.job: one.credential for one in await harness.admitted()} == wanted


async def test_a_job_waits_briefly_for_its_credential_and_no_longer_than_its_patience(harness: GateHarness):
    await harness.register("mine", limits=PLENTY)
    await harness.register("other", limits=PLENTY)
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("first", affinity="mine")])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=59_000)])

    await harness.gate.enqueue([job("patient", affinity="mine")])
    assert await harness.admitted() == []

    harness.advance(seconds=1)
    await harness.gate.enqueue([job("again", affinity="mine")])
    harness.advance(seconds=58)
    await harness.gate.fire()
    assert {one.credential for one in await harness.admitted()} == {"mine"}


async def test_a_job_takes_another_credential_when_its_own_is_blocked_for_long(harness: GateHarness):
    await harness.register("mine", limits=PLENTY)
    await harness.register("other", limits=PLENTY)
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue([job("first", affinity="mine")])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=600_000)])

    await harness.gate.enqueue([job("impatient", affinity="mine")])

    assert [one.credential for one in await harness.admitted()] == ["other"]


async def test_bound_and_unbound_jobs_of_a_credential_take_turns(harness: GateHarness):
    await harness.register("mine", limits=ONE_AT_A_TIME)
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue([job("out", run="z")])
    await harness.gate.enqueue(jobs(3, "bound", run="a", affinity="mine") + jobs(3, "free", run="b"))

    order = await drain(harness, 7)

    assert [sorted(name[0] for name in order[n : n + 2]) for n in (1, 3, 5)] == [["b", "f"]] * 3
