"""Credentials whose upstream tells no allowance: as many calls as their concurrency, in any number of buckets."""

from tests.primitives.gate.harness import PLENTY, GateHarness, job, jobs, names
from tests.primitives.gate.test_pace import HOST, IDENTITY, OTHER, crowd, later
from tidegate.primitives.gate import Outcome, settlement

MANY = IDENTITY.model_copy(update={"concurrency": 3})


async def fields(harness: GateHarness, part: str) -> set[str]:
    return {field.decode() for field in await harness.valkey.execute("HKEYS", harness.unit.key(f"gate:{part}"))}


async def test_without_a_quota_no_probe_is_made(harness: GateHarness):
    await harness.register(limits=MANY)
    await harness.gate.enqueue(jobs(5, bucket=HOST))
    out = await harness.admitted()
    assert len(out) == 3
    await harness.settle_as(out[:2], Outcome.UNKNOWN)
    assert len(await harness.admitted()) == 2, "what became of a call makes no difference where nobody counts"
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.buckets[0].lost, credential.buckets[0].held) == (0, 3)


async def test_a_reported_allowance_applies_to_an_unmetered_credential(harness: GateHarness):
    await harness.register(limits=MANY)
    await harness.gate.enqueue(jobs(5, bucket=HOST))
    first, *_ = await harness.admitted()
    await harness.settle([harness.answered(first, 10, 3)])
    assert len(await harness.admitted()) == 1, "three are left, and two of them are out"
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert (credential.buckets[0].remaining, credential.buckets[0].held) == (3, 3)


async def test_an_identity_is_used_by_one_bucket_at_a_time(harness: GateHarness):
    await crowd(harness, 2)
    hosts = [f"host-{n}" for n in range(8)]
    await harness.gate.enqueue([job(f"job-{host}", bucket=host) for host in hosts])
    done = list[str]()
    while out := await harness.admitted():
        assert len(out) <= 2
        assert len({one.credential for one in out}) == len(out)
        await harness.settle([settlement(out[0])])
        done.append(out[0].bucket)
        for one in out[1:]:
            await harness.settle([settlement(one)])
            done.append(one.bucket)
    assert sorted(done) == hosts


async def test_buckets_waiting_for_a_free_identity_are_served_in_order(harness: GateHarness):
    await crowd(harness, 1)
    for n in (3, 1, 2):
        await harness.gate.enqueue(jobs(2, f"job-{n}", bucket=f"host-{n}"))
    served = list[str]()
    for _ in range(6):
        (out,) = await harness.admitted()
        served.append(out.bucket)
        await harness.settle([settlement(out)])
    assert served == [f"host-{n}" for n in (3, 3, 1, 2, 1, 2)]
    assert "starved|octocat" not in await fields(harness, "pools")


async def test_a_bucket_with_many_jobs_does_not_keep_its_identity(harness: GateHarness):
    await crowd(harness, 2)
    await harness.gate.enqueue(jobs(50, "many", bucket=HOST))
    await harness.gate.enqueue(jobs(3, "few", bucket=OTHER))
    for _ in range(4):
        await harness.settle([settlement(one) for one in await harness.admitted()])
    assert (await harness.gate.status("octocat")).waiting[HOST] > 40
    assert OTHER not in (await harness.gate.status("octocat")).waiting


async def test_a_free_identity_that_is_blocked_in_one_bucket_serves_the_next(harness: GateHarness):
    first, second = await crowd(harness, 2)
    await harness.gate.enqueue([job("rests", bucket=HOST, affinity=first)])
    (out,) = await harness.admitted()
    await harness.settle([settlement(out, blocked_ms=60_000, rests_bucket=True)])
    await harness.gate.enqueue([job("a", bucket="third", affinity=first), job("b", bucket="third", affinity=second)])
    busy = {one.credential: one for one in await harness.admitted()}
    await harness.gate.enqueue([job("host", bucket=HOST), job("other", bucket=OTHER)])
    await harness.settle([settlement(busy[first])])
    assert names(await harness.admitted()) == ["other"]
    await harness.settle([settlement(busy[second])])
    assert names(await harness.admitted()) == ["host"]


async def test_the_minute_limit_of_an_identity_counts_all_its_buckets(harness: GateHarness):
    await harness.register(limits=IDENTITY.model_copy(update={"concurrency": 9, "per_minute": 4}))
    await harness.gate.enqueue([job(f"job-{n}", bucket=f"host-{n}") for n in range(6)])
    assert len(await harness.admitted()) == 4
    assert await later(harness, 59_000) == []
    assert len(await later(harness, 9_000)) == 2


async def test_metered_and_unmetered_credentials_serve_one_pool(harness: GateHarness):
    await harness.register("metered", limits=PLENTY.model_copy(update={"concurrency": 2}))
    await harness.register("unmetered", limits=MANY)
    await harness.gate.enqueue(jobs(9, bucket=HOST))
    out = await harness.admitted()
    assert sorted(one.credential for one in out) == ["metered", *["unmetered"] * 3]
    await harness.gate.enqueue(jobs(3, "other", bucket=OTHER))
    done = set[str]()
    while out:
        for one in out:
            is_metered = one.credential == "metered"
            await harness.settle([harness.answered(one, 1000, 900) if is_metered else settlement(one)])
            done.add(one.job)
        out = await harness.admitted()
    assert len(done) == 12


async def test_a_credential_that_becomes_metered_still_serves_waiting_jobs(harness: GateHarness):
    await harness.register(limits=MANY)
    await harness.gate.enqueue([job("a", bucket=HOST), job("b", bucket=OTHER)])
    out = await harness.admitted()
    await harness.register(limits=PLENTY.model_copy(update={"concurrency": 2}))
    await harness.gate.enqueue([job("c", bucket=HOST), job("d", bucket=OTHER)])
    await harness.settle([harness.answered(one, 1000, 900) for one in out])
    assert sorted(names(await harness.admitted())) == ["c", "d"]
    (credential,) = (await harness.gate.status("octocat")).credentials
    assert sorted(book.name for book in credential.buckets) == sorted([HOST, OTHER])


async def test_a_removed_identity_leaves_no_keys(harness: GateHarness):
    (only,) = await crowd(harness, 1)
    for n in range(3):
        await harness.gate.enqueue([job(f"job-{n}", bucket=f"host-{n}")])
        (out,) = await harness.admitted()
        await harness.settle([settlement(out, blocked_ms=1_000, rests_bucket=True)])
    assert len(await fields(harness, "credentials")) == 5
    await harness.gate.dismiss(only)
    assert await fields(harness, "credentials") == set()


async def test_reading_credentials_writes_nothing(harness: GateHarness):
    """A hundred identities that could make a call are read, one is written."""
    await crowd(harness, 30)
    assert len(await fields(harness, "credentials")) == 30
    await harness.gate.enqueue([job("a", bucket=HOST)])
    assert len(await fields(harness, "credentials")) == 32, (
        "the book of the one that serves, and the list of its buckets"
    )
