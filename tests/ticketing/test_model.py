"""The life of seats against a plain model: whatever is done in whatever order, a seat is somebody's or nobody's."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from examples.ticketing import reservations
from examples.ticketing.bank import Card, Outcome, charges
from examples.ticketing.payments import PAYMENT_COMPLETED, PaymentState
from examples.ticketing.reservations import HoldOver, SeatTaken, TooManySeats
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tests.ticketing.harness import TicketingHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.systems.waiting_room import RoomPlan

USERS, SEATS = ("ada", "bob"), ("A1", "A2", "A3", "A4", "A5")
ALL_DAY = RoomPlan(capacity=100, session=timedelta(days=1), longest_session=timedelta(days=1))
HOLD, SETTLE = timedelta(minutes=10), timedelta(minutes=1)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from(USERS), st.sampled_from(SEATS)),
        st.tuples(st.just("pay"), st.integers(0, 7), st.sampled_from([Card.GOOD, Card.POOR, Card.MUTE])),
        st.tuples(st.just("release"), st.integers(0, 7), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 7), st.none()),
        st.tuples(st.just("keep"), st.none(), st.none()),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Held:
    """A reservation, as the model has it."""

    user: str
    seat: str
    until: datetime
    state: str = "held"
    settle_at: datetime | None = None


class Model:
    """What should be."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.all: list[Held] = []
        self.sold = 0

    def owner(self, seat: str) -> Held | None:
        """Whose a seat is now."""
        return next((each for each in self.all if each.seat == seat and self.claims(each)), None)

    def claims(self, held: Held) -> bool:
        return held.state in ("paying", "paid") or (held.state == "held" and held.until > self._clock.now())

    def reserve(self, user: str, seat: str) -> Held | type[Exception]:
        owner = self.owner(seat)
        if owner is not None and owner.user == user:
            return owner
        if sum(each.user == user and self.claims(each) for each in self.all) >= 4:
            return TooManySeats
        if owner is not None:
            return SeatTaken
        for each in self.all:
            if each.seat == seat and each.state == "held":
                each.state = "expired"
        self.all.append(Held(user, seat, self._clock.now() + HOLD))
        return self.all[-1]

    def pay(self, held: Held, card: Card) -> PaymentState | type[Exception]:
        if held.state != "held" or held.until <= self._clock.now():
            return HoldOver
        match card:
            case Card.GOOD:
                held.state, self.sold = "paid", self.sold + 1
                return PaymentState.COMPLETED
            case Card.POOR:
                return PaymentState.DECLINED
            case _:
                held.state, held.settle_at = "paying", self._clock.now() + SETTLE
                return PaymentState.CHARGING

    def release(self, held: Held) -> type[Exception] | None:
        if held.state not in ("held", "released"):
            return HoldOver
        held.state = "released"
        return None

    def keep(self) -> None:
        for each in self.all:
            if each.state == "paying" and each.settle_at is not None and each.settle_at <= self._clock.now():
                each.state, self.sold = "paid", self.sold + 1
            if each.state == "held" and each.until <= self._clock.now():
                each.state = "expired"


async def tried(work: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await work()
    except (SeatTaken, TooManySeats, HoldOver) as error:
        return type(error)


async def play(harness: TicketingHarness, moves: list[tuple[Any, Any, Any]]) -> None:
    model, sale = Model(harness.clock), await harness.sale(seats=len(SEATS), room=ALL_DAY)
    await harness.enter(sale, *USERS)
    ids: list[str] = []
    for number, (what, one, two) in enumerate(moves):
        index, user = (one, "") if isinstance(one, int) else (0, str(one))
        match what:
            case "reserve":
                expected = model.reserve(user, two)
                found = await tried(lambda user=user, two=two: harness.reserve(sale, two, user))
                if isinstance(expected, Held):
                    assert (found.user, found.seat, found.held_until) == (expected.user, expected.seat, expected.until)
                    ids += [found.id] if found.id not in ids else []
                else:
                    assert found is expected
            case "pay" if index < len(ids):
                held = await harness.database.read(reservations.get, ids[index])
                paid = await tried(lambda held=held, n=number, two=two: harness.pay(held, f"key-{n}", two))
                assert getattr(paid, "state", paid) == model.pay(model.all[index], two)
            case "release" if index < len(ids):
                user = model.all[index].user
                mine = ids[index]
                done = await tried(
                    lambda mine=mine, user=user: harness.database.transaction(reservations.release, mine, user)
                )
                assert done == model.release(model.all[index])
            case "wait":
                harness.clock.advance(timedelta(minutes=index))
            case "keep":
                await harness.keep()
                model.keep()
            case _:
                pass
        seats = await harness.seats(sale, "ada")
        for seat in SEATS:
            owner = model.owner(seat)
            mine = "bought" if owner is not None and owner.state == "paid" else "mine"
            assert seats[seat] == ("free" if owner is None else mine if owner.user == "ada" else "taken")
    await agree(harness, model)


async def agree(harness: TicketingHarness, model: Model) -> None:
    """In the end every sale has one charge and one event, and nothing else has."""
    harness.clock.advance(timedelta(hours=1))
    await harness.keep()
    model.keep()
    events = [event for event in await harness.events() if event.kind == PAYMENT_COMPLETED]
    charged = [row["payment_id"] for row in await harness.rows(charges) if row["outcome"] == Outcome.CHARGED]
    assert len(events) == len(charged) == model.sold
    assert {event.payload["payment"] for event in events} == set(charged)


@settings(max_examples=examples(15))
@given(moves=steps)
def test_seats_behave_like_the_model(embedded_url: str, moves: list[tuple[Any, Any, Any]]):
    async def once() -> None:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            valkey = await stack.enter_async_context(empty_valkey(embedded_url))
            url = await migrated_file(folder / "shop.db")
            await play(await stack.enter_async_context(harness_at(url, valkey, ManualClock(), folder)), moves)

    asyncio.run(once())
