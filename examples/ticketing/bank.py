"""A simulated bank that charges cards; the card decides how it behaves.

A real bank has to offer the same: an idempotency key per charge, chosen by the shop; and a request for the state of a
charge that also prevents the charge from happening later.
"""

import asyncio
from enum import StrEnum
from typing import Protocol

from sqlalchemy import Column, Integer, MetaData, Table, select

from tidegate import Database, InvalidArgument, Transaction
from tidegate.storage.sql import TABLE_OPTIONS, exact_text


class Card(StrEnum):
    """The cards of the made-up bank."""

    GOOD = "4242424242424242"
    POOR = "4000000000000002"  # is refused
    SLOW = "4000000000000077"  # takes longer than the shop waits
    MUTE = "4000000000000119"  # is charged, and the answer gets lost


class BankAway(Exception):
    """No answer: the card may have been charged or not."""


class Bank(Protocol):
    """A bank that charges cards."""

    async def charge(self, payment_id: str, amount: int, card: Card) -> bool:
        """Charge a card, once for each payment; whether it was. Raise `BankAway`."""
        ...

    async def settle(self, payment_id: str) -> bool:
        """Whether a payment was charged; if it was not, it never will be. Raise `BankAway`."""
        ...


metadata = MetaData()
charges = Table(
    "bank_charges",
    metadata,
    Column("payment_id", exact_text(36), primary_key=True),
    Column("amount", Integer, nullable=False),
    Column("outcome", exact_text(16), nullable=False),
    **TABLE_OPTIONS,
)
"""The bank's own tables: it shares no transaction with the shop, and is in the same file only to keep the example
small."""


class Outcome(StrEnum):
    """Outcome of a charge; the first transaction that writes it decides."""

    CHARGED = "charged"
    REFUSED = "refused"
    VOID = "void"  # settled before it was made


class FakeBank:
    """A bank with its own table in the same database, written in its own transactions."""

    def __init__(self, database: Database, *, takes_s: float = 0.0, slow_s: float = 30.0) -> None:
        self._database, self._takes_s, self._slow_s = database, takes_s, slow_s

    async def open_books(self) -> None:
        """Make its table, where it is missing."""
        await self._database.transaction(_create)

    async def charge(self, payment_id: str, amount: int, card: Card) -> bool:
        """See `Bank`."""
        if card not in Card:
            raise InvalidArgument("card", card, "the bank knows no such card")
        await asyncio.sleep(self._slow_s if card is Card.SLOW else self._takes_s)
        wanted = Outcome.REFUSED if card is Card.POOR else Outcome.CHARGED
        outcome = await self._database.transaction(_write, payment_id, amount, wanted)
        if card is Card.MUTE:
            raise BankAway("the line went dead")
        return outcome is Outcome.CHARGED

    async def settle(self, payment_id: str) -> bool:
        """See `Bank`."""
        return await self._database.transaction(_write, payment_id, 0, Outcome.VOID) is Outcome.CHARGED


def _create(tx: Transaction) -> None:
    metadata.create_all(tx.connection)


def _write(tx: Transaction, payment_id: str, amount: int, wanted: Outcome) -> Outcome:
    row = {"payment_id": payment_id, "amount": amount, "outcome": wanted}
    tx.execute(tx.insert_if_absent(charges), row)
    return Outcome(tx.execute(select(charges.c.outcome).where(charges.c.payment_id == payment_id)).scalar_one())
