"""Counts events of the outbox: read, batch, count in SQL, then write to the Valkey server.

An event is handled when both are done. If the process dies in between, the event is delivered again: SQL has counted
it, and the scores are written to the server once more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from tidegate.core.arguments import normalise_id
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument, Unavailable
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.delivery import Handler, Retries, Undeliverable
from tidegate.storage.sql import Database
from tidegate.storage.sql.outbox import Event
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.board_copy import BoardCopy
from tidegate.systems.ranking.metrics import RANKING_EVENTS
from tidegate.systems.ranking.model import AHEAD, CountedEvent
from tidegate.systems.ranking.score_store import LONGEST_ID
from tidegate.systems.ranking.settings import Board

_MOST_AT_ONCE = 500
_LARGEST_AMOUNT = 10**9
_RETRIES = Retries(Backoff(first=timedelta(milliseconds=200), most=timedelta(seconds=30)), max_attempts=50)
"""About ten minutes. An unavailable server costs no attempt; an unreadable event becomes a dead letter at once."""


class _PendingCount(msgspec.Struct):
    """An event that is being counted."""

    count: CountedEvent
    is_done: bool = False
    error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self.is_done, self.error = True, error


class EventCounter:
    """Counts events of one board. Events that arrive during a transaction are counted together in the next one."""

    def __init__(self, database: Database, copy: BoardCopy, keeper: Wakeup) -> None:
        self._database, self._copy, self._keeper = database, copy, keeper
        self._orders: list[_PendingCount] = []
        self._turn = asyncio.Lock()

    async def count(self, event: CountedEvent) -> None:
        """Count an event unless it was counted before. Returns when its scores are visible."""
        order = _PendingCount(event)
        self._orders.append(order)
        # One caller counts for all that came meanwhile. When the others get their turn, their events are usually done.
        async with self._turn:
            while not order.is_done:
                await self._take_some()
        if order.error is not None:
            raise order.error

    async def _take_some(self) -> None:
        taken, self._orders = self._orders[:_MOST_AT_ONCE], self._orders[_MOST_AT_ONCE:]
        try:
            await self._settle(taken)
        finally:
            # A caller that is cancelled while it counts for others leaves their events to the next caller.
            self._orders[:0] = [order for order in taken if not order.is_done]

    async def _settle(self, orders: Sequence[_PendingCount]) -> None:
        try:
            await self._count([order.count for order in orders])
        except Exception as error:
            # An unavailable server is not the fault of an event, so it is not searched for.
            if len(orders) > 1 and not isinstance(error, Unavailable):
                for order in orders:  # find the event that causes the error
                    await self._settle([order])
                return
            for order in orders:
                order.end(error)
        else:
            for order in orders:
                order.end()

    async def _count(self, counts: Sequence[CountedEvent]) -> None:
        board = self._copy.board
        tally = await self._database.transaction(score_store.count, board, counts)
        for outcome, number in (("counted", tally.counted), ("repeated", tally.repeated), ("late", tally.late)):
            RANKING_EVENTS.labels(board.name, outcome).inc(number)
        # After the commit: scores on the server are never ahead of SQL. Events that were counted before are written
        # again, since the process may have died here.
        if not await self._copy.put(tally.standings):
            await self._keeper.notify()


def handlers(boards: Sequence[Board], counters: Mapping[str, EventCounter], database: Database) -> list[Handler]:
    """Return one outbox handler per kind of event; an event may count on several boards."""
    by_kind: dict[str, list[Board]] = defaultdict(list)
    for board in boards:
        by_kind[board.event].append(board)
    return [_handler(kind, ours, counters, database) for kind, ours in by_kind.items()]


def _handler(kind: str, boards: Sequence[Board], counters: Mapping[str, EventCounter], database: Database) -> Handler:
    async def handle(event: Event) -> None:
        unread: Undeliverable | None = None
        for board in boards:
            try:
                count = read_count(board, event, database.clock.now())
            except Undeliverable as error:
                unread = unread or error  # an event that one board cannot read may count on the others
            else:
                await counters[board.name].count(count)
        if unread is not None:
            raise unread

    return Handler(kind, "ranking", handle, retries=_RETRIES)


def read_count(board: Board, event: Event, now: datetime) -> CountedEvent:
    """Return what an event counts on a board. Raises `Undeliverable` if a field is missing or invalid."""
    if not isinstance(event.payload, dict):
        raise Undeliverable("the payload is no object")
    payload = cast("dict[str, Any]", event.payload)
    amount = payload.get(board.amount, 1)
    # `type`, because a bool is an int in Python.
    if type(amount) is not int or not 1 <= amount <= _LARGEST_AMOUNT:
        raise Undeliverable(f"{board.amount!r} must be a whole number from 1 to {_LARGEST_AMOUNT}")
    return CountedEvent(
        event_id=_id(payload, board.id),
        member=_member(payload, board.member),
        at=_time(payload, board, now),
        amount=amount,
    )


def _member(payload: Mapping[str, Any], field: str) -> str:
    given = payload.get(field)
    value = str(given) if type(given) is int else given
    try:
        return normalise_id(field, value if isinstance(value, str) else "", longest=LONGEST_ID)
    except InvalidArgument as error:
        raise Undeliverable(str(error)) from None


def _id(payload: Mapping[str, Any], field: str) -> str:
    given = payload.get(field)
    value = str(given) if type(given) is int else given
    if not isinstance(value, str) or not value or len(value) > LONGEST_ID or not value.isprintable():
        raise Undeliverable(f"{field!r} must be a printable text of up to {LONGEST_ID} characters, or a whole number")
    if value != value.strip():
        raise Undeliverable(f"{field!r} must not begin or end with a space")  # some databases ignore trailing spaces
    return value


def _time(payload: Mapping[str, Any], board: Board, now: datetime) -> datetime:
    try:
        at = msgspec.convert(payload.get(board.time), datetime)
    except msgspec.ValidationError:
        raise Undeliverable(f"{board.time!r} must be a time, as ISO 8601") from None
    if at.tzinfo is None:
        raise Undeliverable(f"{board.time!r} must have a time zone")
    if at > now + AHEAD:
        raise Undeliverable(f"{board.time!r} is more than a day ahead")
    return at
