"""A process of buyers who are inside already.

`rush`: everybody tries every seat; it says which seats they got. `reserve`, `begin`, `charge` and `complete`: one buyer
goes so far on the way to a ticket, says so, and waits to be killed. Arguments: database, schedule, how far, users.
"""

import asyncio
import random
import sys

import msgspec
from examples.ticketing import payments, reservations
from examples.ticketing.bank import Card, FakeBank
from examples.ticketing.payment_service import PaymentService
from examples.ticketing.reservations import SeatTaken, TooManySeats
from examples.ticketing.shop import ShopPlan

from tidegate.core.telemetry.logs import configure_logs
from tidegate.storage.sql import Database

SEATS = [f"A{number}" for number in range(1, 11)]
KEY = "the key of the buyer"
PLAN = ShopPlan()


async def rush(database: Database, schedule: int, users: list[str]) -> list[str]:
    """Everybody wants every seat at once; those they got and paid."""
    payment_service = PaymentService(
        database, FakeBank(database), charge_within=PLAN.charge_within, settle_after=PLAN.settle_after
    )

    async def want(user: str, seat: str) -> str | None:
        try:
            held = await database.transaction(reservations.reserve, schedule, seat, user, PLAN.hold_for)
        except (SeatTaken, TooManySeats):
            return None
        payment = await payment_service.pay(held.id, user, f"{user}-{seat}", Card.GOOD)
        return f"{seat} {payment.state.value}"

    wishes = [(user, seat) for user in users for seat in SEATS]
    random.shuffle(wishes)
    got = await asyncio.gather(*(want(user, seat) for user, seat in wishes))
    return [each for each in got if each is not None]


async def go(database: Database, schedule: int, how_far: str, user: str) -> str:
    """As far as told; the id of what is there then."""
    held = await database.transaction(reservations.reserve, schedule, "A1", user, PLAN.hold_for)
    if how_far == "reserve":
        return held.id
    payment = await database.transaction(payments.begin, held.id, user, KEY, PLAN.settle_after)
    if how_far != "begin":
        assert await FakeBank(database).charge(payment.id, payment.amount, Card.GOOD)
    if how_far == "complete":
        await database.transaction(payments.complete, payment.id)
    return held.id


async def main(url: str, schedule: str, how_far: str, *users: str) -> None:
    configure_logs("console", "error")
    async with await Database.open(url) as database:
        if how_far == "rush":
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            print(msgspec.json.encode(await rush(database, int(schedule), list(users))).decode(), flush=True)
            return
        print(await go(database, int(schedule), how_far, users[0]), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
