"""Jobs that some credentials must not take: assigned to the others, at their rank, and never to those."""

from tests.primitives.gate.harness import GateHarness, job, jobs, names
from tests.primitives.gate.test_pace import HOST, IDENTITY, later
from tidegate.primitives.gate import Outcome, settlement

MANY = IDENTITY.model_copy(update={"concurrency": 3})


async def ada_and_bob(harness: GateHarness) -> None:
    await harness.register("ada", limits=MANY)
    await harness.register("bob", limits=MANY)


async def test_a_job_goes_to_a_credential_that_it_may_use(harness: GateHarness):
    await ada_and_bob(harness)
    await harness.gate.enqueue([*jobs(4, "private", excluded=("ada",)), *jobs(2, "public")])
    out = await harness.admitted()

    assert {one.credential for one in out if one.job.startswith("private")} == {"bob"}
    assert len(out) == 5, "bob takes three, ada both that are for everybody"
    await harness.settle_as(out, Outcome.UNUSED)
    (last,) = await harness.admitted()
    assert (last.job, last.credential) == ("private-00003", "bob")
    assert (await harness.gate.status("octocat")).waiting == {}


async def test_jobs_excluded_from_a_credential_do_not_block_its_other_jobs(harness: GateHarness):
    """However many stand before it, and although nobody can take them now."""
    await ada_and_bob(harness)
    await harness.gate.enqueue([job("rests", excluded=("ada",))])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=60_000)])

    await harness.gate.enqueue([*jobs(600, "private", excluded=("ada",)), job("public", run="later")])
    assert names(await harness.admitted()) == ["public"]
    assert (await harness.gate.status("octocat")).waiting == {"core": 600}

    harness.advance(seconds=61)
    await harness.gate.fire()
    first = await harness.admitted()
    assert {one.credential for one in first} == {"bob"}, "it is planned that somebody looks when bob is back"


async def test_a_job_excluded_from_all_credentials_goes_to_any(harness: GateHarness):
    await ada_and_bob(harness)
    await harness.gate.enqueue([job("nobody's", excluded=("ada", "bob")), job("unknown", excluded=("carol",))])
    assert set(names(await harness.admitted())) == {"nobody's", "unknown"}

    await harness.gate.enqueue(jobs(2, "private", excluded=("ada",)))
    await harness.settle_as(await harness.admitted(), Outcome.UNUSED)
    await harness.gate.enqueue(jobs(2, "left", excluded=("ada",), delay_ms=1000))
    await harness.gate.dismiss("bob")
    harness.advance(seconds=2)
    await harness.gate.fire()
    assert {one.credential for one in await harness.admitted()} == {"ada"}, "nobody else is left"


async def test_in_a_paced_bucket_the_first_job_selects_the_credential(harness: GateHarness):
    """Else one that is for few would wait as long as another credential is better."""
    await ada_and_bob(harness)
    await harness.gate.pace("octocat", HOST, gap_ms=1000)
    await later(harness, 1000)
    await harness.gate.enqueue(
        [
            job("first", bucket=HOST, excluded=("ada",)),
            job("second", bucket=HOST, excluded=("bob",)),
            job("third", bucket=HOST, excluded=("ada",)),
            job("fourth", bucket=HOST),
        ]
    )
    came, admitted = list[tuple[str, str]](), await harness.admitted()
    while admitted:
        (out,) = admitted
        came.append((out.job, out.credential))
        await harness.settle([settlement(out)])
        admitted = await later(harness, 1000)
    assert came[:3] == [("first", "bob"), ("second", "ada"), ("third", "bob")]
    assert came[3][0] == "fourth"


async def test_a_job_that_prefers_a_excluded_credential_waits_for_the_others(harness: GateHarness):
    await ada_and_bob(harness)
    await harness.gate.enqueue([job("wants ada", affinity="ada", excluded=("ada",)), job("wants bob", affinity="bob")])
    assert {one.job: one.credential for one in await harness.admitted()} == {"wants ada": "bob", "wants bob": "bob"}


async def test_a_job_that_leaves_its_preferred_credential_stays_excluded_from_the_others(harness: GateHarness):
    for name in ("ada", "bob", "carol"):
        await harness.register(name, limits=IDENTITY)
    await harness.gate.enqueue([job("keeps bob", affinity="bob")])
    (held,) = await harness.admitted()
    await harness.gate.enqueue([job("moves", affinity="bob", excluded=("ada",))])
    assert await harness.admitted() == []
    await harness.gate.dismiss("bob")

    (moved,) = await harness.admitted()
    assert (held.credential, moved.job, moved.credential) == ("bob", "moves", "carol")


async def test_a_removed_job_leaves_no_keys(harness: GateHarness):
    await harness.gate.enqueue(jobs(3, excluded=("ada",)))
    assert await harness.gate.forget([f"job-{n:05}" for n in range(3)]) == 3
    await ada_and_bob(harness)
    assert await harness.admitted() == []
    assert await harness.gate.lengths() == (0, 0)
