"""Timed work of the shop: end expired holds, and settle interrupted payments.

Both are due sources of the leader's timekeeper. Due times are in SQL only, so no timer can be lost between a commit and
its creation. No wake-up is needed either: an entry that a check does not see lasts for a known time, and cannot be due
before.
"""

import asyncio
import math
from datetime import datetime, timedelta

from examples.ticketing import payments, reservations
from examples.ticketing.payment_service import PaymentService

from tidegate import Database

_AT_ONCE = 20
_ONE_MS = timedelta(milliseconds=1)


class HoldExpiry:
    """Ends holds at their time."""

    def __init__(self, database: Database, hold_for: timedelta) -> None:
        self._database, self._hold_for = database, hold_for

    async def fire(self) -> int | None:
        """See `DueSource`."""
        now = self._database.clock.now()
        next_at = await self._database.read(reservations.next_end)
        if next_at is not None and next_at <= now:
            await self._database.transaction(reservations.expire_some)
            return 0
        return _until(now, next_at, now + self._hold_for)

    def __repr__(self) -> str:
        return "HoldExpiry"


class PaymentSettlement:
    """Settles payments that were interrupted, or for which the bank did not answer."""

    def __init__(self, database: Database, payment_service: PaymentService, settle_after: timedelta) -> None:
        self._database, self._payment_service, self._settle_after = database, payment_service, settle_after

    async def fire(self) -> int | None:
        """See `DueSource`."""
        now = self._database.clock.now()
        overdue = await self._database.read(payments.unsettled, _AT_ONCE)
        # Await all of them, also if the bank fails for one: otherwise the others would continue in the background.
        settled = await asyncio.gather(*map(self._payment_service.settle, overdue), return_exceptions=True)
        for each in settled:
            if isinstance(each, BaseException):
                raise each
        if overdue:
            return 0
        next_at = await self._database.read(payments.next_settling)
        return _until(now, next_at, now + self._settle_after)

    def __repr__(self) -> str:
        return "PaymentSettlement"


def _until(now: datetime, known: datetime | None, others: datetime) -> int:
    """Milliseconds until the next entry is due: a known one, or the earliest that can have been created meanwhile."""
    due = others if known is None else min(known, others)
    return max(0, math.ceil((due - now) / _ONE_MS))
