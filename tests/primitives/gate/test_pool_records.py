"""A gate that lost its data is told what SQL remembers, and breaks no rule that it had known."""

from datetime import timedelta

import pytest

from tests.primitives.gate.harness import PLENTY, GateHarness, jobs
from tidegate.core.clock import to_ms
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import BucketStatus, CredentialRecord, PoolRecord


def memory(*notes: CredentialRecord, started: int = 0, running: int = 0) -> PoolRecord:
    return PoolRecord(pool="octocat", started=started, running=running, notes=list(notes))


def little_left(
    harness: GateHarness, remaining: int, *, limit: int = 100, credential: str = "token"
) -> CredentialRecord:
    """Of the window that the harness's answers are about."""
    resets_in_ms = harness.window * 1000 - to_ms(harness.clock.now())
    return CredentialRecord(
        credential=credential,
        bucket="core",
        limit=limit,
        remaining=remaining,
        window=harness.window,
        resets_in_ms=resets_in_ms,
    )


async def forget(harness: GateHarness) -> None:
    await harness.valkey.execute("FLUSHALL")
    await harness.prepare()


async def core(harness: GateHarness) -> BucketStatus:
    (credential,) = (await harness.gate.status("octocat")).credentials
    return next(bucket for bucket in credential.buckets if bucket.name == "core")


async def test_an_exhausted_window_is_not_called(harness: GateHarness):
    await forget(harness)
    await harness.gate.remind(memory(little_left(harness, 0)))
    await harness.gate.enqueue(jobs(3))
    await harness.register()

    assert await harness.admitted() == []
    assert (await core(harness)).reason == "exhausted"
    harness.advance(hours=1)
    await harness.gate.fire()
    assert len(await harness.admitted()) == 3, "it counts as full when its time is over"


async def test_possibly_running_calls_count_as_spent(harness: GateHarness):
    await forget(harness)
    await harness.gate.remind(memory(little_left(harness, 10), running=4))
    await harness.register()
    await harness.gate.enqueue(jobs(20))

    assert len(await harness.admitted()) == 10 - 4


async def test_a_blocked_credential_stays_blocked(harness: GateHarness):
    await forget(harness)
    await harness.gate.remind(memory(CredentialRecord(credential="token", bucket="core", blocked_ms=60_000)))
    await harness.register()
    await harness.gate.enqueue(jobs(1))

    assert await harness.admitted() == []
    harness.advance(seconds=60)
    await harness.gate.fire()
    assert len(await harness.admitted()) == 1


@pytest.mark.parametrize("is_noted", [True, False])
async def test_calls_of_the_last_minute_count(harness: GateHarness, is_noted: bool):
    """Of a credential of which nothing is noted it is not known whose calls they were: they may be all its own."""
    await forget(harness)
    notes = [little_left(harness, 100, limit=1000)] if is_noted else []
    await harness.gate.remind(memory(*notes, started=7))
    await harness.register(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await harness.gate.enqueue(jobs(20))
    out = await harness.admitted()
    await harness.settle([harness.answered(one, 1000, 99 - n) for n, one in enumerate(out)])

    assert len(out) + len(await harness.admitted()) == 3
    harness.advance(seconds=68)
    await harness.gate.fire()
    assert len(await harness.admitted()) == 10


async def test_a_record_applied_after_the_minute_counts_no_calls(harness: GateHarness):
    await forget(harness)
    await harness.gate.remind(memory(started=10))
    harness.advance(seconds=68)
    await harness.register(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await harness.set_allowance(limit=1000)
    await harness.gate.enqueue(jobs(20))

    assert len(await harness.admitted()) == 9


async def test_applying_records_twice_counts_once(harness: GateHarness):
    await forget(harness)
    for _ in range(2):
        await harness.gate.remind(memory(little_left(harness, 50), started=4, running=5))
    await harness.register(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await harness.gate.enqueue(jobs(20))

    assert len(await harness.admitted()) == 6
    assert (await core(harness)).lost == 5


async def test_records_do_not_change_a_gate_with_its_data(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100)
    await harness.gate.enqueue(jobs(30))
    out = await harness.admitted()
    await harness.settle([harness.answered(one, 100, 99 - n) for n, one in enumerate(out[:20])])
    before = await harness.gate.status("octocat")

    await harness.gate.remind(memory(little_left(harness, 80), started=31, running=10))

    assert await harness.gate.status("octocat") == before


async def test_a_gate_with_old_data_uses_the_lower_number(harness: GateHarness):
    await harness.register()
    await harness.set_allowance(limit=100, remaining=90)

    await harness.gate.remind(memory(little_left(harness, 12)))
    await harness.gate.enqueue(jobs(30))
    assert len(await harness.admitted()) == 12


async def test_a_record_of_a_past_window_has_no_effect(harness: GateHarness):
    await harness.register()
    old = little_left(harness, 0)
    harness.window += 3600
    await harness.set_allowance(limit=100)

    await harness.gate.remind(memory(old))
    await harness.gate.enqueue(jobs(30))
    assert len(await harness.admitted()) == 30


async def test_invalid_arguments_are_refused(harness: GateHarness):
    with pytest.raises(InvalidArgument, match="started"):
        await harness.gate.remind(memory(started=-1))
    with pytest.raises(InvalidArgument, match="running"):
        await harness.gate.remind(memory(running=-1))


async def test_a_confirmed_enqueue_intent_is_not_checked(harness: GateHarness):
    intent = await harness.gate.intents.record()
    assert await harness.gate.intents.expired() == (0, 10_000)
    await harness.gate.intents.confirm(intent)
    harness.advance(minutes=1)
    assert await harness.gate.intents.expired() == (0, None)


async def test_an_unconfirmed_enqueue_intent_is_checked_at_growing_intervals_and_then_dropped(harness: GateHarness):
    """Whoever made it may only be slow, and commit after the first look."""
    await harness.gate.intents.record()
    checks, waited_ms = 0, 0
    while (next_in_ms := (await harness.gate.intents.expired())[1]) is not None:
        harness.advance(milliseconds=next_in_ms)
        waited_ms += next_in_ms
        checks += 1
    assert checks == 6
    assert timedelta(milliseconds=waited_ms) == timedelta(seconds=10 + 10 + 20 + 40 + 80 + 160)


async def test_an_enqueue_intent_wakes_the_timekeeper_when_it_would_sleep_too_long(harness: GateHarness):
    async def rung() -> bool:
        return await harness.valkey.execute("LPOP", harness.wake) is not None

    await harness.gate.intents.record()
    assert await rung()
    await harness.gate.intents.record()
    assert not await rung(), "it comes due later"
    await harness.gate.intents.record(check_after=timedelta(seconds=1))
    assert await rung()
