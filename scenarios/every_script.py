"""Uses every primitive once through its public methods, so that each of its scripts runs on the server."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import Coalescer, Draft
from tidegate.primitives.gate import Admitted, Gate, Job, settlement
from tidegate.primitives.gate.model import PoolRecord
from tidegate.primitives.limiter import Limiter
from tidegate.primitives.membership import Election, Membership
from tidegate.primitives.stream import Stream, TicketedStream
from tidegate.primitives.throttle import Throttle
from tidegate.primitives.timers import Timers
from tidegate.primitives.wakeup import Wakeup
from tidegate.storage.valkey import Key, Unit, Valkey

_SOON = timedelta(milliseconds=1)
_LATER = timedelta(hours=1)
_POOL = "pool"


async def use_everything(valkey: Valkey, unit: Unit) -> None:
    """Everything but the snapshots' own, which only a deployment uses."""
    await _stream(Stream(valkey, unit, "stream"))
    await _passage(TicketedStream(valkey, Stream(valkey, unit, "passed")))
    await _timers(Timers(valkey, unit, unit.key("alarms")))
    await _presence(valkey, unit)
    await _limiter(Limiter(valkey, valkey.unit(f"{unit.name}-limiter")))
    await _coalescer(Coalescer(valkey, name=unit.name), unit.key("published"))
    await _gate(valkey, unit)
    await Wakeup(valkey, unit.key("bell")).notify()
    throttle = Throttle(valkey, unit.name, burst=1, interval=_LATER)
    await throttle.take("address", "item")
    await throttle.give_back("address", "item")


async def _stream(stream: Stream) -> None:
    reader = stream.consumer("reader")
    await stream.add([{b"n": b"%d" % n} for n in range(4)])
    first, second, third, _ = await reader.read(4, 1)
    await stream.held_by("reader", [first.id])
    await reader.ack([first.id])
    await reader.retry([second.id], "once more")
    await reader.fail(third, "it cannot be done")
    await stream.dead_letters.replay([each.id for each in (await stream.dead_letters.page()).letters])
    await stream.take_over("reader")
    await stream.sweep_idle()
    await stream.status()


async def _passage(passage: TicketedStream) -> None:
    sender = passage.sender("sender")
    await passage.stream.add([{b"n": b"1"}])
    tickets = [each.id for each in await sender.read(1, 1)]
    await passage.sent(sender, tickets)
    await passage.overdue(_LATER)
    await passage.take("worker", tickets)


async def _timers(timers: Timers) -> None:
    await timers.schedule("soon", _SOON)
    await timers.schedule("later", _LATER)
    await timers.reschedule("later", 2 * _LATER)
    await timers.status()
    await timers.fire()
    await timers.cancel("later")


async def _presence(valkey: Valkey, unit: Unit) -> None:
    membership, election = Membership(valkey, unit, "process"), Election(valkey, unit, "process")
    await membership.join()
    await membership.renew()
    await membership.members()
    await membership.expire()
    await membership.declare_dead("another")
    await membership.known_dead()
    await election.stand()
    await election.resign()
    await membership.leave()


async def _limiter(limiter: Limiter) -> None:
    await limiter.take(1, priority=Priority.HIGH)
    await limiter.pause(_SOON)
    await limiter.status()


async def _coalescer(coalescer: Coalescer, stream: Key) -> None:
    drafted = Draft("drafted", Priority.HIGH, 0, ("key", "drafted", "value"), '{"version":')
    await coalescer.publish_many(stream, [drafted])
    outcome = await coalescer.request("subject", Priority.LOW)
    await coalescer.confirm("subject", outcome.version)
    await coalescer.release("subject", outcome.version)


async def _gate(valkey: Valkey, unit: Unit) -> None:
    jobs = Stream(valkey, unit, "jobs")
    gate = Gate(valkey, unit, stream=jobs.keys.stream, group=jobs.settings.group, wake=unit.key("wake"))
    await gate.remind(PoolRecord(pool=_POOL, started=0, running=0, notes=[]))
    await gate.pace(_POOL, "slow", gap_ms=1)
    await gate.register("credential", pool=_POOL)
    await gate.intents.record(_SOON)
    await gate.intents.expired()
    await gate.enqueue([_job(n) for n in range(3)])
    await gate.open(_POOL)
    await gate.fire()
    await gate.status(_POOL)
    await gate.shard_status()
    admitted = [Admitted.from_fields(each.id, each.fields, 1) for each in await jobs.consumer("worker").read(1, 1)]
    await gate.confirm(admitted)
    await gate.report(settlement(admitted[0], blocked_ms=1))
    await gate.settle([settlement(each) for each in admitted])
    # A message that is lost leaves a permit behind, which is freed.
    await valkey.execute("XTRIM", jobs.keys.stream, "MAXLEN", 0)
    await gate.rebuild(_nothing())
    await gate.forget(["job-2"])
    await gate.dismiss("credential")


def _job(number: int) -> Job:
    return Job(job=f"job-{number}", pool=_POOL, run="run")


async def _nothing() -> AsyncIterator[Sequence[Job]]:
    for _ in range(0):
        yield []
