"""A gate that lost its data is told what SQL remembers, and breaks no rule that it had known."""

from datetime import timedelta

import pytest

from tests.primitives.gate.desk import PLENTY, Desk, jobs
from tidegate.core.clock import to_ms
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.gate import BucketStatus, CredentialRecord, PoolRecord


def memory(*notes: CredentialRecord, started: int = 0, running: int = 0) -> PoolRecord:
    return PoolRecord(pool="octocat", started=started, running=running, notes=list(notes))


def little_left(desk: Desk, remaining: int, *, limit: int = 100, credential: str = "token") -> CredentialRecord:
    """Of the window that the desk's answers are about."""
    resets_in_ms = desk.window * 1000 - to_ms(desk.clock.now())
    return CredentialRecord(
        credential=credential,
        bucket="core",
        limit=limit,
        remaining=remaining,
        window=desk.window,
        resets_in_ms=resets_in_ms,
    )


async def forget(desk: Desk) -> None:
    await desk.valkey.execute("FLUSHALL")
    await desk.prepare()


async def core(desk: Desk) -> BucketStatus:
    (credential,) = (await desk.gate.status("octocat")).credentials
    return next(bucket for bucket in credential.buckets if bucket.name == "core")


async def test_an_exhausted_window_is_not_called(desk: Desk):
    await forget(desk)
    await desk.gate.remind(memory(little_left(desk, 0)))
    await desk.gate.enqueue(jobs(3))
    await desk.enrol()

    assert await desk.admitted() == []
    assert (await core(desk)).reason == "exhausted"
    desk.advance(hours=1)
    await desk.gate.fire()
    assert len(await desk.admitted()) == 3, "it counts as full when its time is over"


async def test_possibly_running_calls_count_as_spent(desk: Desk):
    await forget(desk)
    await desk.gate.remind(memory(little_left(desk, 10), running=4))
    await desk.enrol()
    await desk.gate.enqueue(jobs(20))

    assert len(await desk.admitted()) == 10 - 4


async def test_a_blocked_credential_stays_blocked(desk: Desk):
    await forget(desk)
    await desk.gate.remind(memory(CredentialRecord(credential="token", bucket="core", blocked_ms=60_000)))
    await desk.enrol()
    await desk.gate.enqueue(jobs(1))

    assert await desk.admitted() == []
    desk.advance(seconds=60)
    await desk.gate.fire()
    assert len(await desk.admitted()) == 1


@pytest.mark.parametrize("is_noted", [True, False])
async def test_calls_of_the_last_minute_count(desk: Desk, is_noted: bool):
    """Of a credential of which nothing is noted it is not known whose calls they were: they may be all its own."""
    await forget(desk)
    notes = [little_left(desk, 100, limit=1000)] if is_noted else []
    await desk.gate.remind(memory(*notes, started=7))
    await desk.enrol(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await desk.gate.enqueue(jobs(20))
    out = await desk.admitted()
    await desk.settle([desk.answered(one, 1000, 99 - n) for n, one in enumerate(out)])

    assert len(out) + len(await desk.admitted()) == 3
    desk.advance(seconds=68)
    await desk.gate.fire()
    assert len(await desk.admitted()) == 10


async def test_a_record_applied_after_the_minute_counts_no_calls(desk: Desk):
    await forget(desk)
    await desk.gate.remind(memory(started=10))
    desk.advance(seconds=68)
    await desk.enrol(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await desk.know(limit=1000)
    await desk.gate.enqueue(jobs(20))

    assert len(await desk.admitted()) == 9


async def test_applying_records_twice_counts_once(desk: Desk):
    await forget(desk)
    for _ in range(2):
        await desk.gate.remind(memory(little_left(desk, 50), started=4, running=5))
    await desk.enrol(limits=PLENTY.model_copy(update={"per_minute": 10}))
    await desk.gate.enqueue(jobs(20))

    assert len(await desk.admitted()) == 6
    assert (await core(desk)).lost == 5


async def test_records_do_not_change_a_gate_with_its_data(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100)
    await desk.gate.enqueue(jobs(30))
    out = await desk.admitted()
    await desk.settle([desk.answered(one, 100, 99 - n) for n, one in enumerate(out[:20])])
    before = await desk.gate.status("octocat")

    await desk.gate.remind(memory(little_left(desk, 80), started=31, running=10))

    assert await desk.gate.status("octocat") == before


async def test_a_gate_with_old_data_uses_the_lower_number(desk: Desk):
    await desk.enrol()
    await desk.know(limit=100, remaining=90)

    await desk.gate.remind(memory(little_left(desk, 12)))
    await desk.gate.enqueue(jobs(30))
    assert len(await desk.admitted()) == 12


async def test_a_record_of_a_past_window_has_no_effect(desk: Desk):
    await desk.enrol()
    old = little_left(desk, 0)
    desk.window += 3600
    await desk.know(limit=100)

    await desk.gate.remind(memory(old))
    await desk.gate.enqueue(jobs(30))
    assert len(await desk.admitted()) == 30


async def test_invalid_arguments_are_refused(desk: Desk):
    with pytest.raises(InvalidArgument, match="started"):
        await desk.gate.remind(memory(started=-1))
    with pytest.raises(InvalidArgument, match="running"):
        await desk.gate.remind(memory(running=-1))


async def test_a_confirmed_enqueue_intent_is_not_checked(desk: Desk):
    promise = await desk.gate.intents.record()
    assert await desk.gate.intents.expired() == (0, 10_000)
    await desk.gate.intents.confirm(promise)
    desk.advance(minutes=1)
    assert await desk.gate.intents.expired() == (0, None)


async def test_an_unconfirmed_enqueue_intent_is_checked_at_growing_intervals_and_then_dropped(desk: Desk):
    """Whoever made it may only be slow, and commit after the first look."""
    await desk.gate.intents.record()
    looks, waited_ms = 0, 0
    while (next_in_ms := (await desk.gate.intents.expired())[1]) is not None:
        desk.advance(milliseconds=next_in_ms)
        waited_ms += next_in_ms
        looks += 1
    assert looks == 6
    assert timedelta(milliseconds=waited_ms) == timedelta(seconds=10 + 10 + 20 + 40 + 80 + 160)


async def test_an_enqueue_intent_wakes_the_timekeeper_when_it_would_sleep_too_long(desk: Desk):
    async def rung() -> bool:
        return await desk.valkey.execute("LPOP", desk.wake) is not None

    await desk.gate.intents.record()
    assert await rung()
    await desk.gate.intents.record()
    assert not await rung(), "it comes due later"
    await desk.gate.intents.record(look_after=timedelta(seconds=1))
    assert await rung()
