"""Messages that reach their workers by another queue, which loses, repeats and reorders tickets."""

import asyncio
from datetime import timedelta

import pytest

from tests.primitives.stream.messages import ids, numbered, numbers
from tests.primitives.stream.test_stream import grow_old
from tidegate.core.errors import InvalidArgument
from tidegate.primitives.stream import Consumer, Stream, TicketedStream
from tidegate.storage.valkey import Valkey

LONG = timedelta(minutes=6)
SOON = timedelta(minutes=2)


@pytest.fixture
def passage(valkey: Valkey, stream: Stream) -> TicketedStream:
    return TicketedStream(valkey, stream)


async def read(passage: TicketedStream, count: int, owner: str = "post") -> tuple[Consumer, list[str]]:
    """So many messages that a sender has read."""
    await passage.stream.add(numbered(range(count)))
    sender = passage.sender(owner)
    return sender, ids(await sender.read(count, 0))


async def sent(passage: TicketedStream, count: int) -> list[str]:
    """So many messages whose tickets are in the queue."""
    sender, tickets = await read(passage, count)
    await passage.sent(sender, tickets)
    return tickets


async def names(stream: Stream) -> dict[str, int]:
    """In whose names messages stand."""
    return {each.name: each.pending for each in (await stream.status()).consumers if each.pending}


async def test_the_holder_of_a_ticket_gets_the_message(passage: TicketedStream):
    tickets = await sent(passage, 3)
    assert await names(passage.stream) == {"onward": 3}

    taken = await passage.take("worker", reversed(tickets))

    assert sorted(numbers(taken)) == [0, 1, 2]
    assert {message.deliveries for message in taken} == {1}
    assert await names(passage.stream) == {"worker": 3}


async def test_a_ticket_may_arrive_before_its_sender_recorded_it_as_sent(passage: TicketedStream):
    sender, tickets = await read(passage, 2)
    assert numbers(await passage.take("worker", tickets[:1])) == [0]

    await passage.sent(sender, tickets)

    assert await names(passage.stream) == {"worker": 1, "onward": 1}
    assert sender.held == frozenset()


async def test_of_several_tickets_for_one_message_one_is_valid(passage: TicketedStream):
    tickets = await sent(passage, 120)

    hauls = await asyncio.gather(*(passage.take(f"worker{n}", tickets) for n in range(5)))

    assert sorted(number for haul in hauls for number in numbers(haul)) == list(range(120))


async def test_a_worker_with_a_lost_reply_gets_its_messages_again(passage: TicketedStream):
    tickets = await sent(passage, 2)
    await passage.take("worker", tickets)

    assert numbers(await passage.take("worker", tickets)) == [0, 1]
    assert await passage.take("another", tickets) == []


async def test_a_ticket_for_a_completed_message_is_void(passage: TicketedStream):
    tickets = await sent(passage, 2)
    await passage.take("worker", tickets)
    await passage.stream.ack(tickets)

    assert await passage.take("worker", [*tickets, "1-1", f"{2**64 - 1}-0"]) == []


async def test_a_server_that_lost_its_data_makes_all_tickets_void(passage: TicketedStream, valkey: Valkey):
    tickets = await sent(passage, 2)
    await valkey.execute("DEL", passage.stream.keys.stream)

    assert await passage.take("worker", tickets) == []
    assert (await passage.overdue(SOON))[:2] == ([], [])


async def test_unsent_messages_of_a_dead_sender_return_uncounted(passage: TicketedStream):
    _, tickets = await read(passage, 2, owner="dead")

    assert await passage.stream.take_over("dead") == 2

    assert await passage.take("worker", tickets) == []
    again = await passage.sender("alive").read(10, 0)
    assert [message.deliveries for message in again] == [1, 1]


async def test_sent_messages_of_a_dead_sender_stay_in_place(passage: TicketedStream):
    tickets = await sent(passage, 2)

    assert await passage.stream.take_over("post") == 0
    assert await passage.stream.holders() == set()

    assert numbers(await passage.take("worker", tickets)) == [0, 1]
    assert await passage.stream.holders() == {"worker"}


async def test_messages_of_a_dead_worker_return_with_one_more_delivery(passage: TicketedStream):
    tickets = await sent(passage, 1)
    await passage.take("worker", tickets)

    assert await passage.stream.take_over("worker") == 1

    assert await passage.take("another", tickets) == []
    [again] = await passage.sender("post").read(10, 0)
    assert again.deliveries == 2


async def test_a_leaving_worker_returns_its_messages(passage: TicketedStream):
    await passage.take("worker", await sent(passage, 2))

    assert await passage.release("worker") == 2

    again = await passage.sender("post").read(10, 0)
    assert [message.deliveries for message in again] == [1, 1]
    await passage.take("worker", [message.id for message in again])
    assert await passage.release("worker", counts=True) == 2, "it was cut off"
    assert [message.deliveries for message in await passage.sender("post").read(10, 0)] == [2, 2]


async def test_orphaned_messages_return_uncounted(passage: TicketedStream, valkey: Valkey):
    [ticket] = await sent(passage, 1)
    for _ in range(5):
        await grow_old(valkey, passage.stream, "onward", ticket, LONG)
        await passage.stream.sweep_idle()
        [again] = await passage.sender("post").read(10, 0)
        await passage.sent(passage.sender("post"), [again.id])
        ticket = again.id
        assert again.deliveries == 1

    assert await passage.stream.dead_letters.count() == 0


async def test_unsendable_messages_do_not_count_as_orphaned(passage: TicketedStream, valkey: Valkey):
    sender, tickets = await read(passage, 2)
    await passage.take("worker", tickets[:1])
    await grow_old(valkey, passage.stream, sender.name, tickets[1], LONG)

    assert await passage.keep(sender, tickets) == tickets[1:]

    await passage.stream.sweep_idle()
    assert await names(passage.stream) == {sender.name: 1, "worker": 1}


async def test_an_unused_ticket_is_sent_again_at_growing_intervals(passage: TicketedStream, valkey: Valkey):
    [ticket] = await sent(passage, 1)
    resent: list[int] = []
    for look in range(1, 20):
        await grow_old(valkey, passage.stream, "onward", ticket, SOON)
        overdue = await passage.overdue(SOON)
        assert overdue.lost + overdue.waiting == [ticket]
        resent += [look] * len(overdue.lost)
        await passage.mark_checked([ticket], counts=True)

    assert resent == [1, 2, 4, 8, 16]


async def test_a_ticket_that_could_not_be_sent_again_is_sent_next_time(passage: TicketedStream, valkey: Valkey):
    [ticket] = await sent(passage, 1)
    for _ in range(3):
        await grow_old(valkey, passage.stream, "onward", ticket, SOON)
        assert (await passage.overdue(SOON)).lost == [ticket]
        await passage.mark_checked([ticket], counts=False)


async def test_it_reports_when_the_next_ticket_can_be_overdue(passage: TicketedStream, valkey: Valkey):
    assert await passage.overdue(SOON) == ([], [], 120_000)
    tickets = await sent(passage, 230)
    await grow_old(valkey, passage.stream, "onward", tickets[200], timedelta(seconds=90))
    await grow_old(valkey, passage.stream, "onward", tickets[210], SOON)

    overdue = await passage.overdue(SOON)

    assert overdue.lost == [tickets[210]]
    assert 20_000 < overdue.next_in_ms <= 30_000


async def test_messages_taken_by_a_worker_are_never_overdue(passage: TicketedStream, valkey: Valkey):
    tickets = await sent(passage, 1)
    await grow_old(valkey, passage.stream, "onward", tickets[0], LONG)
    await passage.take("worker", tickets)
    await passage.mark_checked(tickets, counts=True)

    assert (await passage.overdue(SOON))[:2] == ([], [])
    assert await names(passage.stream) == {"worker": 1}


async def test_invalid_arguments_are_refused(passage: TicketedStream):
    with pytest.raises(InvalidArgument, match="id"):
        await passage.take("worker", ["not an id"])
    with pytest.raises(InvalidArgument, match="consumer"):
        await passage.take("", ["1-1"])
    with pytest.raises(InvalidArgument, match="after"):
        await passage.overdue(timedelta(0))
