"""Jobs that some credentials must not take: assigned to the others, at their rank, and never to those."""

from tests.primitives.gate.desk import Desk, job, jobs, names
from tests.primitives.gate.test_pace import HOST, IDENTITY, later
from tidegate.primitives.gate import Outcome, settlement

MANY = IDENTITY.model_copy(update={"concurrency": 3})


async def ada_and_bob(desk: Desk) -> None:
    await desk.enrol("ada", limits=MANY)
    await desk.enrol("bob", limits=MANY)


async def test_a_job_goes_to_a_credential_that_it_may_use(desk: Desk):
    await ada_and_bob(desk)
    await desk.gate.enqueue([*jobs(4, "private", barred=("ada",)), *jobs(2, "public")])
    out = await desk.admitted()

    assert {one.credential for one in out if one.job.startswith("private")} == {"bob"}
    assert len(out) == 5, "bob takes three, ada both that are for everybody"
    await desk.settle_as(out, Outcome.UNUSED)
    (last,) = await desk.admitted()
    assert (last.job, last.credential) == ("private-00003", "bob")
    assert (await desk.gate.status("octocat")).waiting == {}


async def test_jobs_barred_from_a_credential_do_not_block_its_other_jobs(desk: Desk):
    """However many stand before it, and although nobody can take them now."""
    await ada_and_bob(desk)
    await desk.gate.enqueue([job("rests", barred=("ada",))])
    (out,) = await desk.admitted()
    await desk.settle([settlement(out, blocked_ms=60_000)])

    await desk.gate.enqueue([*jobs(600, "private", barred=("ada",)), job("public", run="later")])
    assert names(await desk.admitted()) == ["public"]
    assert (await desk.gate.status("octocat")).waiting == {"core": 600}

    desk.advance(seconds=61)
    await desk.gate.fire()
    first = await desk.admitted()
    assert {one.credential for one in first} == {"bob"}, "it is planned that somebody looks when bob is back"


async def test_a_job_barred_from_all_credentials_goes_to_any(desk: Desk):
    await ada_and_bob(desk)
    await desk.gate.enqueue([job("nobody's", barred=("ada", "bob")), job("unknown", barred=("carol",))])
    assert set(names(await desk.admitted())) == {"nobody's", "unknown"}

    await desk.gate.enqueue(jobs(2, "private", barred=("ada",)))
    await desk.settle_as(await desk.admitted(), Outcome.UNUSED)
    await desk.gate.enqueue(jobs(2, "left", barred=("ada",), delay_ms=1000))
    await desk.gate.dismiss("bob")
    desk.advance(seconds=2)
    await desk.gate.fire()
    assert {one.credential for one in await desk.admitted()} == {"ada"}, "nobody else is left"


async def test_in_a_paced_bucket_the_first_job_selects_the_credential(desk: Desk):
    """Else one that is for few would wait as long as another credential is better."""
    await ada_and_bob(desk)
    await desk.gate.pace("octocat", HOST, gap_ms=1000)
    await later(desk, 1000)
    await desk.gate.enqueue(
        [
            job("first", bucket=HOST, barred=("ada",)),
            job("second", bucket=HOST, barred=("bob",)),
            job("third", bucket=HOST, barred=("ada",)),
            job("fourth", bucket=HOST),
        ]
    )
    came, admitted = list[tuple[str, str]](), await desk.admitted()
    while admitted:
        (out,) = admitted
        came.append((out.job, out.credential))
        await desk.settle([settlement(out)])
        admitted = await later(desk, 1000)
    assert came[:3] == [("first", "bob"), ("second", "ada"), ("third", "bob")]
    assert came[3][0] == "fourth"


async def test_a_job_that_prefers_a_barred_credential_waits_for_the_others(desk: Desk):
    await ada_and_bob(desk)
    await desk.gate.enqueue([job("wants ada", affinity="ada", barred=("ada",)), job("wants bob", affinity="bob")])
    assert {one.job: one.credential for one in await desk.admitted()} == {"wants ada": "bob", "wants bob": "bob"}


async def test_a_job_that_leaves_its_preferred_credential_stays_barred_from_the_others(desk: Desk):
    for name in ("ada", "bob", "carol"):
        await desk.enrol(name, limits=IDENTITY)
    await desk.gate.enqueue([job("keeps bob", affinity="bob")])
    (held,) = await desk.admitted()
    await desk.gate.enqueue([job("moves", affinity="bob", barred=("ada",))])
    assert await desk.admitted() == []
    await desk.gate.dismiss("bob")

    (moved,) = await desk.admitted()
    assert (held.credential, moved.job, moved.credential) == ("bob", "moves", "carol")


async def test_a_removed_job_leaves_no_keys(desk: Desk):
    await desk.gate.enqueue(jobs(3, barred=("ada",)))
    assert await desk.gate.forget([f"job-{n:05}" for n in range(3)]) == 3
    await ada_and_bob(desk)
    assert await desk.admitted() == []
    assert await desk.gate.lengths() == (0, 0)
