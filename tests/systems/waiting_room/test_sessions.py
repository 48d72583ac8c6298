"""Inside: SQL says who is, for how long, and until when."""

import asyncio
from datetime import timedelta

import pytest

from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, inside
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room import NotActive, PassRefused, Session, WaitingRoom, require_active
from tidegate.systems.waiting_room.model import VisitorAdmission
from tidegate.systems.waiting_room.session_store import expire, renew

SESSION = timedelta(minutes=10)
LONGEST = timedelta(minutes=30)


async def enter(harness: RoomHarness, room: WaitingRoom, user: str) -> str:
    """The pass of one who is inside."""
    await room.join(user)
    await harness.run_worker()
    return (await room.join(user)).token or ""


async def test_a_session_ends_at_its_time_and_the_next_visitor_is_admitted(harness_on_each_server: RoomHarness):
    room = await harness_on_each_server.open(session=SESSION, longest_session=LONGEST, abandon_after=timedelta(hours=1))
    token = await enter(harness_on_each_server, room, "ada")
    await add_visitors(room, "bob")
    assert await harness_on_each_server.run_worker() == 600_000

    harness_on_each_server.clock.advance(SESSION - timedelta(milliseconds=1))
    assert await harness_on_each_server.run_worker() == 1
    await room.check(token)
    harness_on_each_server.clock.advance(timedelta(milliseconds=1))
    with pytest.raises(NotActive):
        await room.check(token)
    await harness_on_each_server.run_worker()

    assert await inside(room, "ada", "bob") == ["bob"]
    assert await harness_on_each_server.states() == [("ada", "expired"), ("bob", "active")]


@pytest.mark.every_server
async def test_activity_prolongs_a_session_with_less_than_half_its_time_left_up_to_the_maximum(
    harness_on_each_server: RoomHarness,
):
    room = await harness_on_each_server.open(session=SESSION, longest_session=LONGEST)
    token = await enter(harness_on_each_server, room, "ada")
    left: list[int] = []
    for _ in range(8):
        harness_on_each_server.clock.advance(timedelta(minutes=4))
        try:
            standing = (await room.renew(token)).standing
        except (NotActive, PassRefused):
            break
        left.append(getattr(standing, "left_ms", -1) // 60_000)

    assert left == [6, 10, 6, 10, 6, 6, 2]
    await harness_on_each_server.run_worker()
    assert await harness_on_each_server.states() == [("ada", "expired")]


async def test_a_session_prolonged_only_in_sql_is_not_ended(harness: RoomHarness):
    """The process that extended it died before it updated the server, for which the session is over."""
    room = await harness.open(session=SESSION, longest_session=LONGEST)
    await enter(harness, room, "ada")
    harness.clock.advance(timedelta(minutes=6))
    await harness.database.transaction(renew, ROOM, "ada")
    harness.clock.advance(timedelta(minutes=4))
    assert await inside(room, "ada") == []

    assert await harness.run_worker() == 360_000
    assert await inside(room, "ada") == ["ada"]


async def test_a_session_prolonged_only_in_sql_is_accepted_without_a_leader(harness: RoomHarness):
    """Valkey believes that the session is over; until a leader corrects that, SQL decides."""
    room = await harness.open(session=SESSION, longest_session=LONGEST)
    token = await enter(harness, room, "ada")
    harness.clock.advance(timedelta(minutes=6))
    await harness.database.transaction(renew, ROOM, "ada")
    harness.clock.advance(timedelta(minutes=5))

    standing = (await room.check(token)).standing

    assert getattr(standing, "left_ms", 0) == 5 * 60_000
    harness.clock.advance(timedelta(minutes=5))
    with pytest.raises(NotActive):
        await room.check(token)


async def test_the_binding_check_holds_until_the_end_of_the_session(harness_on_each_server: RoomHarness):
    room = await harness_on_each_server.open(session=SESSION)
    await enter(harness_on_each_server, room, "ada")
    buy = harness_on_each_server.database.transaction

    assert (await buy(require_active, ROOM, "ada")).user == "ada"
    with pytest.raises(NotActive):
        await buy(require_active, ROOM, "bob")
    with pytest.raises(NotActive):
        await buy(require_active, "another room", "ada")
    harness_on_each_server.clock.advance(SESSION)
    with pytest.raises(NotActive):
        await buy(require_active, ROOM, "ada")


@pytest.mark.every_server
async def test_a_running_purchase_and_the_end_of_its_session_exclude_each_other(harness_on_each_server: RoomHarness):
    """The session ends after the purchase, or the purchase fails: it is never ended in the middle of one."""
    room = await harness_on_each_server.open(session=SESSION)
    await enter(harness_on_each_server, room, "ada")
    entry = (await room.join("ada")).standing
    order: list[str] = []
    checked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def buy(tx: Transaction) -> Session:
        session = require_active(tx, ROOM, "ada")
        loop.call_soon_threadsafe(checked.set)
        tx.after_commit(lambda: order.append("bought"))
        for _ in range(20):  # some work, for as long as the other needs to come here
            tx.execute_sql("SELECT COUNT(*) FROM room_tokens")
        return session

    buying = asyncio.create_task(harness_on_each_server.database.transaction(buy))
    await checked.wait()
    harness_on_each_server.clock.advance(SESSION)

    def end(tx: Transaction) -> None:
        expire(tx, ROOM, [VisitorAdmission("ada", getattr(entry, "admission", 0))])
        tx.after_commit(lambda: order.append("expired"))

    await harness_on_each_server.database.transaction(end)
    await buying
    [(_, state)] = await harness_on_each_server.states()
    # A visitor that was admitted in between would have overtaken this one, however close the commits were.
    assert state == "active" or order == ["bought", "expired"], "nobody ends what somebody is buying in"


@pytest.mark.every_server
async def test_a_slow_purchase_delays_no_other(harness_on_each_server: RoomHarness, request: pytest.FixtureRequest):
    """Its session is over, and has to wait for it; the others end, and the next come in."""
    if "sqlite" in request.node.name:
        pytest.skip("has one writer at a time, whatever it writes")
    room = await harness_on_each_server.open(capacity=2, session=SESSION, abandon_after=timedelta(hours=1))
    await enter(harness_on_each_server, room, "ada")
    await enter(harness_on_each_server, room, "bob")
    await add_visitors(room, "eve")
    checked, loop = asyncio.Event(), asyncio.get_running_loop()
    sleep = "SELECT pg_sleep(4)" if "postgres" in request.node.name else "SELECT SLEEP(4)"

    def buy(tx: Transaction) -> None:
        require_active(tx, ROOM, "ada")
        loop.call_soon_threadsafe(checked.set)
        tx.execute_sql(sleep)

    buying = asyncio.create_task(harness_on_each_server.database.transaction(buy))
    await checked.wait()
    harness_on_each_server.clock.advance(SESSION)
    assert await harness_on_each_server.run_worker() == 1000, "in a second he is looked at again"

    assert not buying.done()
    assert await inside(room, "bob", "eve") == ["eve"]
    await buying
    harness_on_each_server.clock.advance(timedelta(seconds=1))
    await harness_on_each_server.run_worker()
    assert (await harness_on_each_server.states())[:2] == [("ada", "expired"), ("bob", "expired")]


async def test_no_visitor_has_two_sessions(harness_on_each_server: RoomHarness):
    """Also where two admissions of one user reach SQL, as after a loss of the line."""
    room = await harness_on_each_server.open(capacity=5)
    await add_visitors(room, "ada")
    first = await room.admitter.take()
    await harness_on_each_server.valkey.execute("DEL", room.line.keys["entries"], room.line.keys["entering"])
    await add_visitors(room, "ada")
    await harness_on_each_server.run_worker()

    found = await room.admitter.write(first)

    assert found.active == []
    assert await harness_on_each_server.states() == [("ada", "active")]
