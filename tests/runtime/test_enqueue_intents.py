from datetime import timedelta

from tidegate.core.clock import ManualClock
from tidegate.primitives.gate import EnqueueIntents
from tidegate.runtime.recoverer import EnqueueIntentMonitor
from tidegate.storage.valkey import Valkey


async def test_an_expired_enqueue_intent_is_reported_and_a_confirmed_one_is_not(valkey: Valkey, clock: ManualClock):
    told: list[str] = []
    unit = valkey.unit("all")
    intents = EnqueueIntents(valkey, unit, wake=unit.key("wake"), clock=clock)
    promised = EnqueueIntentMonitor(intents, tell=[lambda: told.append("look")])
    assert await promised.fire() is None

    await intents.record()
    kept = await intents.record(check_after=timedelta(seconds=5))
    assert await promised.fire() == 5_000
    await intents.confirm(kept)
    clock.advance(timedelta(seconds=9))
    assert await promised.fire() == 1_000
    assert told == []

    clock.advance(timedelta(seconds=1))
    assert await promised.fire() == 10_000, "whoever made it may only be slow"
    assert told == ["look"]


async def test_many_expired_enqueue_intents_cause_few_recoveries(valkey: Valkey, clock: ManualClock):
    """A database that refuses for ten seconds leaves a promise for each attempt to begin a run."""
    recoveries: list[str] = []
    unit = valkey.unit("many")
    intents = EnqueueIntents(valkey, unit, wake=unit.key("wake"), clock=clock)
    promised = EnqueueIntentMonitor(intents, tell=[lambda: recoveries.append("recover")])
    for _ in range(100):
        await intents.record()
        clock.advance(timedelta(milliseconds=100))
    for _ in range(200):
        await promised.fire()
        clock.advance(timedelta(milliseconds=100))

    assert 1 <= len(recoveries) <= 10
