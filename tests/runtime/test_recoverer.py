import asyncio
from datetime import timedelta

import pytest

from tests.servers.refusing import refusing
from tests.servers.valkey import ValkeyServer
from tests.waiting import until
from tidegate.core.clock import ManualClock, milliseconds, to_ms
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream, StreamSettings
from tidegate.runtime.recoverer import Recoverer
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected

LEASE_MS = 10_000
IDLE_MS = 300_000
FIRST_LOOK_MS = 1_000
PROOF_MS = 1_500


class Away(Stream):
    """A stream whose node of the cluster cannot be reached."""

    away = True

    async def take_over(self, owner: str) -> int:
        if self.away:
            raise ValkeyUnavailable("node is away")
        return await super().take_over(owner)


def membership(valkey: Valkey, owner: str, clock: ManualClock) -> Membership:
    return Membership(valkey, valkey.unit("all"), owner, clock=clock)


def stream(valkey: Valkey, name: str, *, kind: type[Stream] = Stream) -> Stream:
    return kind(valkey, valkey.unit(name), "messages", StreamSettings())


def recoverer(valkey: Valkey, clock: ManualClock, *streams: Stream) -> Recoverer:
    return Recoverer(membership(valkey, "leader", clock), streams, now_ms=lambda: to_ms(clock.now()))


async def kept(recovering: Recoverer, clock: ManualClock, span_ms: int) -> int | None:
    """Time passes, and the timekeeper fires whenever it was told to; when it is to fire next."""
    next_in_ms = await recovering.fire()
    while span_ms > 0:
        step_ms = span_ms if next_in_ms is None else min(span_ms, max(1, next_in_ms))
        clock.advance(timedelta(milliseconds=step_ms))
        span_ms -= step_ms
        next_in_ms = await recovering.fire()
    return next_in_ms


async def held_by(owner: str, *streams: Stream, count: int = 3) -> None:
    for each in streams:
        await each.add([{b"n": str(n).encode()} for n in range(count)])
        assert len(await each.consumer(owner).read(count, 1)) == count


async def owners(valkey: Valkey, clock: ManualClock) -> list[str]:
    return [member.owner for member in await membership(valkey, "leader", clock).members()]


async def test_messages_of_a_dead_process_are_taken_over_in_every_stream(valkey: Valkey, clock: ManualClock):
    one, two = stream(valkey, "one"), stream(valkey, "two")
    await membership(valkey, "dead", clock).join()
    await held_by("dead", one, two)
    recovering = recoverer(valkey, clock, one, two)

    assert await recovering.fire() == LEASE_MS - PROOF_MS
    await kept(recovering, clock, LEASE_MS - 1)
    assert (await one.status()).pending == 3, "its lease has not ended"

    assert await kept(recovering, clock, 1) == FIRST_LOOK_MS, "when it is looked at again"
    for each in (one, two):
        messages = await each.consumer("living").read(10, 1)
        assert [message.deliveries for message in messages] == [2, 2, 2]
    assert await owners(valkey, clock) == []


async def test_messages_of_an_unknown_process_are_taken_over_once_live_processes_must_have_joined(
    valkey: Valkey, clock: ManualClock
):
    """The server forgot it, it went on reading, and it died before it noticed: there is no lease that could end."""
    one = stream(valkey, "one")
    await held_by("stranger", one)
    living = membership(valkey, "living", clock)
    await living.join()
    await held_by("living", one, count=2)
    recovering = recoverer(valkey, clock, one)
    recovering.begin()

    assert await recovering.fire() == LEASE_MS - PROOF_MS
    assert (await one.status()).pending == 5, "it may join yet"
    clock.advance(timedelta(milliseconds=LEASE_MS - 1))
    assert await living.renew()
    clock.advance(timedelta(milliseconds=1))
    await recovering.fire()

    assert (await one.status()).pending == 2, "what the living hold stays theirs"
    assert len(await one.consumer("other").read(10, 1)) == 3

    await held_by("another stranger", one)
    await recovering.fire()
    assert (await one.status()).pending == 8, "nobody looks without a reason"


async def test_messages_delivered_to_a_frozen_process_are_taken_over_again(valkey: Valkey, clock: ManualClock):
    """It still waits at the stream, and has waited longest: what was taken from it comes back to it."""
    one = stream(valkey, "one")
    await membership(valkey, "frozen", clock).join()
    await held_by("frozen", one)
    command = ("XREADGROUP", "GROUP", one.settings.group, "frozen", "COUNT", 10, "BLOCK", 60_000)
    waiting = asyncio.create_task(valkey.execute_blocking(*command, "STREAMS", one.keys.stream, ">", within_s=60))
    while not await is_blocked(valkey):
        pass
    await kept(recoverer(valkey, clock, one), clock, LEASE_MS)

    assert len(await one.consumer("living").read(10, 1)) == 3
    assert await waiting, "and what it does with them counts for nothing"


async def test_dead_processes_are_checked_at_growing_intervals_until_no_read_can_be_pending(
    valkey: Valkey, clock: ManualClock
):
    one = stream(valkey, "one")
    await membership(valkey, "frozen", clock).join()
    recovering = recoverer(valkey, clock, one)
    pauses = [await kept(recovering, clock, LEASE_MS)]
    await held_by("frozen", one)  # given to it after its death
    while pauses[-1] is not None and pauses[-1] < IDLE_MS:
        clock.advance(timedelta(milliseconds=pauses[-1]))
        pauses.append(await recovering.fire())

    assert pauses[:4] == [1_000, 2_000, 4_000, 8_000]
    assert sum(filter(None, pauses[:-1])) > IDLE_MS
    assert (await one.status()).pending == 0


async def test_a_process_that_is_alive_again_keeps_its_messages(valkey: Valkey, clock: ManualClock):
    one = stream(valkey, "one")
    thawed = membership(valkey, "thawed", clock)
    await thawed.join()
    recovering = recoverer(valkey, clock, one)
    await kept(recovering, clock, LEASE_MS)
    await thawed.join()
    await held_by("thawed", one)
    clock.advance(timedelta(milliseconds=FIRST_LOOK_MS))
    await recovering.fire()

    assert (await one.status()).pending == 3


async def is_blocked(valkey: Valkey) -> bool:
    return (await valkey.execute("INFO", "clients"))["blocked_clients"] > 0


async def test_live_processes_keep_their_messages(valkey: Valkey, clock: ManualClock):
    one = stream(valkey, "one")
    living = membership(valkey, "living", clock)
    await living.join()
    await held_by("living", one)
    clock.advance(timedelta(seconds=7))
    await living.renew()
    clock.advance(timedelta(seconds=7))
    assert await recoverer(valkey, clock, one).fire() == 3_000 - PROOF_MS
    assert (await one.status()).pending == 3
    assert await owners(valkey, clock) == ["living"]


async def test_a_single_process_is_not_checked_before_a_message_can_be_stalled(valkey: Valkey, clock: ManualClock):
    alone = recoverer(valkey, clock, stream(valkey, "one"))
    assert await alone.fire() == IDLE_MS


async def test_without_streams_and_other_processes_nothing_is_due(valkey: Valkey, clock: ManualClock):
    assert await recoverer(valkey, clock).fire() is None


async def test_messages_stalled_in_a_live_process_are_taken_over(valkey: Valkey, clock: ManualClock):
    """The server measures how long a message was held, so here the limit is short and time is real."""
    hasty = Stream(valkey, valkey.unit("one"), "messages", StreamSettings(idle_limit=timedelta(milliseconds=1)))
    await held_by("stuck", hasty)
    sweeping = recoverer(valkey, clock, hasty)
    while (await hasty.status()).pending:
        clock.advance(timedelta(milliseconds=1))
        await sweeping.fire()
    assert len(await hasty.consumer("living").read(10, 1)) == 3


async def test_between_two_sweeps_a_stream_is_not_read(valkey: Valkey, clock: ManualClock):
    class Counting(Stream):
        sweeps = 0

        async def sweep_idle(self, idle_limit: timedelta | None = None, *, counts: bool = True) -> int:
            self.sweeps += 1
            return await super().sweep_idle(idle_limit, counts=counts)

    counting = Counting(valkey, valkey.unit("one"), "messages")
    sweeping = recoverer(valkey, clock, counting)
    for _ in range(5):
        await sweeping.fire()
    assert counting.sweeps == 1
    clock.advance(timedelta(milliseconds=IDLE_MS))
    await sweeping.fire()
    assert counting.sweeps == 2


async def test_a_failing_stream_delays_no_other_and_loses_nothing(valkey: Valkey, clock: ManualClock):
    away, near = stream(valkey, "away", kind=Away), stream(valkey, "near")
    for owner in ("dead", "dead too"):
        await membership(valkey, owner, clock).join()
        await held_by(owner, away, near)
    recovering = recoverer(valkey, clock, away, near)

    with pytest.raises(ValkeyUnavailable):
        await kept(recovering, clock, LEASE_MS)
    assert (await near.status()).pending == 0
    known = await membership(valkey, "leader", clock).known_dead()
    assert sorted(known) == ["dead", "dead too"], "not forgotten while they still hold something"

    assert isinstance(away, Away)
    away.away = False
    await recovering.fire()
    assert (await away.status()).pending == 0
    assert await owners(valkey, clock) == []


async def test_messages_of_a_process_known_to_be_dead_are_taken_over_before_its_lease_ends(
    valkey: Valkey, clock: ManualClock
):
    one, two = stream(valkey, "one"), stream(valkey, "two", kind=Away)
    await membership(valkey, "dead", clock).join()
    await held_by("dead", one, two)
    recovering = recoverer(valkey, clock, one, two)
    await membership(valkey, "neighbour", clock).declare_dead("dead")

    with pytest.raises(ValkeyUnavailable):
        await recovering.fire()
    assert [message.deliveries for message in await one.consumer("living").read(10, 1)] == [2, 2, 2]
    two.away = False  # pyright: ignore[reportAttributeAccessIssue]
    await recovering.fire()

    assert [message.deliveries for message in await two.consumer("living").read(10, 1)] == [2, 2, 2]
    assert await membership(valkey, "leader", clock).known_dead() == []


async def test_live_processes_keep_their_messages_when_no_lease_could_be_renewed(valkey: Valkey, clock: ManualClock):
    """The server refused all writes for longer than a lease. Then it accepts again, and the leader comes first."""
    one, living = stream(valkey, "one"), membership(valkey, "living", clock)
    await living.join()
    await held_by("living", one)
    recovering = recoverer(valkey, clock, one)
    await kept(recovering, clock, 5_000)

    clock.advance(timedelta(milliseconds=3 * LEASE_MS))
    await kept(recovering, clock, PROOF_MS - 1)
    assert (await one.status()).pending == 3
    assert not await living.renew(), "it had ended, and nobody acted on that"
    await kept(recovering, clock, LEASE_MS - 1)
    assert (await one.status()).pending == 3
    await kept(recovering, clock, 1)
    assert (await one.status()).pending == 0, "a whole lease without a sign, on a server that accepted writes"


@pytest.mark.parametrize("is_new_lead", [False, True])
async def test_messages_held_during_a_long_refusal_stay_with_live_processes_until_they_can_settle(
    clock: ManualClock, is_new_lead: bool
):
    """While the server refuses all writes, every message is held for longer than a worker may hold it."""
    with ValkeyServer() as server:
        async with connected(server.url) as valkey:
            hasty = Stream(valkey, valkey.unit("one"), "messages", StreamSettings(idle_limit=timedelta(milliseconds=1)))
            living, recovering = membership(valkey, "living", clock), recoverer(valkey, clock, hasty)
            await living.join()
            await recovering.fire()
            await held_by("living", hasty)
            await until(lambda: is_held_too_long(hasty))
            with refusing(server):
                for _ in range(2):
                    with pytest.raises(ValkeyUnavailable):
                        await recovering.fire()
                    clock.advance(timedelta(milliseconds=LEASE_MS))
            if is_new_lead:
                recovering = recoverer(valkey, clock, hasty)
                recovering.begin()

            await recovering.fire()
            assert (await hasty.status()).pending == 3, "its worker lives and can settle now"
            await living.renew()
            clock.advance(timedelta(milliseconds=LEASE_MS))
            await living.renew()
            await recovering.fire()
            assert (await hasty.status()).pending == 0, "a worker that settles nothing hangs"


async def is_held_too_long(stream: Stream) -> bool:
    """Whether the messages are older than the idle limit by the clock of the server, which no test can move."""
    (consumer,) = (await stream.status()).consumers
    return consumer.idle_ms > milliseconds(stream.settings.idle_limit)
