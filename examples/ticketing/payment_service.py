"""Takes payments: a transaction before the call to the bank, and one after it; the bank takes part in neither."""

import asyncio
from datetime import timedelta

from examples.ticketing import payments
from examples.ticketing.bank import Bank, BankAway, Card
from examples.ticketing.payments import Payment, PaymentState

from tidegate import Database


class PaymentService:
    """Takes payments, and settles those that were interrupted."""

    def __init__(self, database: Database, bank: Bank, *, charge_within: timedelta, settle_after: timedelta) -> None:
        self._database, self._bank = database, bank
        self._charge_within_s, self._settle_after = charge_within.total_seconds(), settle_after

    async def pay(self, reservation_id: str, user: str, key: str, card: Card) -> Payment:
        """Pay for a seat. The same key again is the same payment, wherever the first try ended.

        A payment that is still CHARGING has an unknown outcome at the bank; it is settled later. Raises what
        `payments.begin` raises.
        """
        payment = await self._database.transaction(payments.begin, reservation_id, user, key, self._settle_after)
        if payment.state is not PaymentState.CHARGING:
            return payment
        try:
            async with asyncio.timeout(self._charge_within_s):
                is_charged = await self._bank.charge(payment.id, payment.amount, card)
        except (BankAway, TimeoutError):
            return payment
        return await self._end(payment.id, is_charged=is_charged)

    async def settle(self, payment_id: str) -> Payment:
        """Read the outcome of a payment from the bank, and make it final."""
        return await self._end(payment_id, is_charged=await self._bank.settle(payment_id))

    async def _end(self, payment_id: str, *, is_charged: bool) -> Payment:
        return await self._database.transaction(payments.complete if is_charged else payments.decline, payment_id)
