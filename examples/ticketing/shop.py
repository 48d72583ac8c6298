"""The shop, put together from the parts of Tidegate and its own."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from examples.ticketing import catalogue
from examples.ticketing.bank import FakeBank
from examples.ticketing.due_sources import HoldExpiry, PaymentSettlement
from examples.ticketing.payment_service import PaymentService
from examples.ticketing.payments import PAYMENT_COMPLETED
from examples.ticketing.reservations import room_of
from examples.ticketing.tables import create_tables

from tidegate import Context, Database, Event, Handler, Ranking, Service, Settings, open_context
from tidegate.process import Supervisor, build_process
from tidegate.systems.ranking import Board, RankingSettings
from tidegate.systems.waiting_room import MOST_CAPACITY, RoomPlan, WaitingRooms, open_waiting_rooms

BOARD = Board(
    name="concerts",
    timezone="Asia/Seoul",
    event=PAYMENT_COMPLETED,
    member="concert",
    id="payment",
    time="paid_at",
)
"""The ranking of concerts by completed payments. This is all that connects payments with the ranking."""


class ShopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the shop is run."""

    hold_for: timedelta = timedelta(minutes=10)
    """How long a seat is held without a payment."""
    charge_within: timedelta = timedelta(seconds=10)
    """How long a buyer waits for the bank."""
    settle_after: timedelta = timedelta(minutes=1)
    """When an interrupted payment is settled; longer than `charge_within`."""
    bank_takes_s: float = 0.0
    """How long the made-up bank thinks."""


@dataclass(frozen=True, kw_only=True)
class Shop:
    """One process's hold on the shop."""

    parts: Context
    plan: ShopPlan
    rooms: WaitingRooms
    ranking: Ranking
    payment_service: PaymentService

    @property
    def database(self) -> Database:
        """Where everything is written that counts."""
        return self.parts.database

    async def open_sale(self, concert: int, starts_at: datetime, *, seats: int, price: int, room: RoomPlan) -> int:
        """Put an evening on sale, with a waiting room before its seats; returns its id."""
        schedule = await self.database.transaction(catalogue.add_schedule, concert, starts_at, seats, price)
        of_concert = await self.database.read(catalogue.schedule, schedule)
        plan = msgspec.structs.replace(
            room, title=of_concert.concert.title, entrance=f"/schedules/{schedule}", anonymous=True
        )
        await self.rooms.create(room_of(schedule), plan)
        await self.rooms.open(room_of(schedule))
        return schedule

    async def end_the_wait(self, event: Event) -> None:
        """After a payment: if the evening is sold out, admit all waiting visitors, so that they see that it is sold
        out.

        Closing the room would leave them waiting. Safe to repeat.
        """
        schedule: int = event.payload["schedule"]
        counts = await self.database.read(catalogue.seat_counts, [schedule])
        if not counts[schedule].left:
            await self.rooms.change_plan(room_of(schedule), {"capacity": MOST_CAPACITY})


def process_of(shop: Shop, services: Mapping[str, Service] | None = None) -> Supervisor:
    """A process of the deployment; whichever leads keeps the rooms, the holds, the payments and the ranking."""
    plan, database = shop.plan, shop.database
    return build_process(
        shop.parts,
        handlers=[*shop.ranking.handlers, Handler(PAYMENT_COMPLETED, "sold-out", shop.end_the_wait)],
        sources=[
            HoldExpiry(database, plan.hold_for),
            PaymentSettlement(database, shop.payment_service, plan.settle_after),
        ],
        leader_services={"rooms": shop.rooms.workers(), "ranking": shop.ranking.leader_service},
        services=services,
    )


@asynccontextmanager
async def open_shop(settings: Settings, plan: ShopPlan | None = None) -> AsyncGenerator[Shop]:
    """A shop on the servers of the settings, for the length of a block; its tables must be there (`make_tables`)."""
    async with open_context(settings) as parts:
        yield put_shop_together(parts, plan or ShopPlan())


async def make_tables(database: Database) -> None:
    """Create missing tables of the shop and of the bank; one process does this, before the others."""
    await create_tables(database)
    await FakeBank(database).open_books()


def put_shop_together(parts: Context, plan: ShopPlan) -> Shop:
    """The shop, on connections that are open."""
    bank = FakeBank(parts.database, takes_s=plan.bank_takes_s)
    payment_service = PaymentService(
        parts.database, bank, charge_within=plan.charge_within, settle_after=plan.settle_after
    )
    rooms = open_waiting_rooms(parts.settings, parts.database, parts.valkey)
    ranking = Ranking(parts.database, parts.valkey, RankingSettings(boards=(BOARD,)))
    return Shop(parts=parts, plan=plan, rooms=rooms, ranking=ranking, payment_service=payment_service)
