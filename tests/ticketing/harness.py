"""A shop for the tests, on a clock that stands still: evenings on sale, and buyers who are inside."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from examples.ticketing import catalogue, payments, reservations
from examples.ticketing.bank import Card
from examples.ticketing.due_sources import HoldExpiry, PaymentSettlement
from examples.ticketing.payments import Payment
from examples.ticketing.reservations import Reservation, room_of
from examples.ticketing.shop import BOARD, Shop, ShopPlan, make_tables, put_shop_together
from sqlalchemy import select

from tidegate.connections import build_context
from tidegate.core.clock import Clock, ManualClock
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.model import RankingPeriod
from tidegate.systems.waiting_room import RoomPlan

ROOM = RoomPlan(capacity=100, session=timedelta(hours=1), longest_session=timedelta(hours=2))
PLAN = ShopPlan(charge_within=timedelta(milliseconds=200))


@dataclass
class TicketingHarness:
    """A shop, and its clock."""

    shop: Shop
    clock: ManualClock

    @property
    def database(self) -> Database:
        return self.shop.database

    async def concert(self, title: str = "Night Ferry") -> int:
        return await self.database.transaction(catalogue.add_concert, title, f"{title} Band", "Harbour Hall")

    async def sale(self, *, seats: int = 3, concert: int | None = None, room: RoomPlan = ROOM) -> int:
        """An evening on sale."""
        concert = await self.concert() if concert is None else concert
        starts_at = self.clock.now() + timedelta(days=30)
        return await self.shop.open_sale(concert, starts_at, seats=seats, price=100, room=room)

    async def enter(self, schedule: int, *users: str) -> list[str]:
        """They are inside; their passes."""
        room = await self.shop.rooms.room(room_of(schedule))
        await room.invite(users)
        return [(await room.join(user)).token or "" for user in users]

    async def reserve(self, schedule: int, seat: str, user: str) -> Reservation:
        hold_for = self.shop.plan.hold_for
        return await self.database.transaction(reservations.reserve, schedule, seat, user, hold_for)

    async def pay(self, held: Reservation, key: str = "key", card: Card = Card.GOOD) -> Payment:
        return await self.shop.payment_service.pay(held.id, held.user, key, card)

    async def buy(self, schedule: int, seat: str, user: str) -> Payment:
        return await self.pay(await self.reserve(schedule, seat, user), key=f"{user}-{seat}")

    async def state(self, held: Reservation) -> str:
        return (await self.database.read(reservations.get, held.id)).state.value

    async def payment_state(self, payment: Payment) -> str:
        return (await self.database.read(payments.get, payment.id)).state.value

    async def seats(self, schedule: int, user: str = "nobody") -> dict[str, str]:
        """What each seat is to a user."""
        found = await self.database.read(catalogue.seat_map, schedule, user)
        return {seat.label: seat.availability.value for seat in found}

    async def keep(self) -> tuple[int | None, int | None]:
        """What the leader does until there is nothing to do; in how many ms there is more, for holds and payments."""
        plan, payment_service = self.shop.plan, self.shop.payment_service
        holds = HoldExpiry(self.database, plan.hold_for)
        settling = PaymentSettlement(self.database, payment_service, plan.settle_after)
        while (next_payment := await settling.fire()) == 0:
            pass
        while (next_hold := await holds.fire()) == 0:
            pass
        return next_hold, next_payment

    async def events(self) -> list[Event]:
        """What waits in the outbox."""
        return [row.event() for row in await self.database.read(outbox.pending_page)]

    async def relay(self, events: list[Event] | None = None) -> None:
        """What the relay does: takes events to those who want to hear of them, and then removes them."""
        rows = await self.database.read(outbox.pending_page)
        for event in [row.event() for row in rows] if events is None else events:
            for handler in self.shop.ranking.handlers:
                await handler.handle(event)
        await self.database.transaction(outbox.remove, [row.id for row in rows])

    async def declare(self) -> None:
        """The ranking has begun: what its keeper does first."""
        await self.shop.ranking.rebuild(BOARD.name)

    async def ranked(self, period: RankingPeriod = RankingPeriod.DAILY) -> list[tuple[str, int]]:
        top = await self.shop.ranking.top(BOARD.name, period)
        return [(entry.member, entry.score) for entry in top.entries]

    async def rows(self, table: Any) -> list[dict[str, Any]]:
        return await self.database.read(_rows, table)


@asynccontextmanager
async def harness_at(url: str, valkey: Valkey, clock: Clock, folder: Path) -> AsyncGenerator[TicketingHarness]:
    """A stall on a database that has Tidegate's tables."""
    async with await Database.open(url, clock=clock) as database:
        await make_tables(database)
        parts = build_context(Settings(data_dir=folder), valkey, database)
        assert isinstance(clock, ManualClock)
        yield TicketingHarness(put_shop_together(parts, PLAN), clock)


def _rows(tx: Transaction, table: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in tx.execute(select(table)).mappings()]
