"""Refreshes that failed for good: to be looked at, then replayed or dropped by somebody who knows why."""

from datetime import datetime

import msgspec

from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Outcome
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent, UnknownSchema, as_json
from tidegate.systems.snapshots.reads import SnapshotReader
from tidegate.systems.snapshots.requests import RefreshPublisher, RefreshRequest
from tidegate.systems.snapshots.transports.protocol import DeadEntry, Transport

_LONGEST_MESSAGE = 2000
_LATEST_MS = 253_402_300_799_000
"""The year 9999."""


class RefreshDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter, and what it is called."""

    id: str
    update: FailedRefresh


class RefreshDeadLetters:
    """The dead letters of all topics."""

    def __init__(
        self, transport: Transport, requests: RefreshPublisher, coalescer: Coalescer, reader: SnapshotReader
    ) -> None:
        self._transport, self._requests, self._coalescer, self._reader = transport, requests, coalescer, reader

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[RefreshDeadLetter]:
        """The oldest `limit` of those behind `after`, or of all."""
        return [_letter(entry) for entry in await self._transport.dead(after=after, limit=limit)]

    async def get(self, letter_id: str) -> RefreshDeadLetter:
        """One of them; raises `NotFound`."""
        return _letter(await self._transport.dead_one(letter_id))

    async def replay(self, letter_id: str) -> Outcome:
        """Ask for the refresh again, under a new version, and drop the letter.

        Where somebody is at it already, nothing is published, and the letter stays: he may have died with the lock in
        his hand, and then nobody is.
        """
        letter = await self.get(letter_id)
        event = _event(letter)
        # It was released with the failure, unless its worker died just then; whoever replays does not wait for that.
        await self._coalescer.release(event.subject_id, event.version)
        wish = RefreshRequest(
            subject=event.subject,
            priority=event.priority,
            reason=event.reason,
            known_version=event.version,
            upstream_id=event.upstream_id,
            correlation_id=event.correlation_id,
        )
        with self._reader.expecting(event.subject):
            outcome = await self._requests.ask(wish)
        if not isinstance(outcome, AlreadyProcessing):
            await self._transport.drop(letter_id)
        return outcome

    async def drop(self, letter_id: str) -> bool:
        """Give it up for good; False when it was not there."""
        return await self._transport.drop(letter_id)


def _letter(entry: DeadEntry) -> RefreshDeadLetter:
    """A letter that is not ours, or that a newer version wrote, is told too: somebody has to drop it."""
    try:
        return RefreshDeadLetter(entry.id, FailedRefresh.decode(entry.value))
    except UnknownSchema as error:
        update = FailedRefresh(
            event=msgspec.Raw(as_json(entry.value)),
            subject_id=entry.key,
            reason=FailureReason.UNKNOWN_SCHEMA,
            message=fit_to_keep(str(error), most=_LONGEST_MESSAGE),
            failed_at=_sent_at(entry.id),
            worker="unknown",
        )
        return RefreshDeadLetter(entry.id, update)


def _sent_at(entry_id: str) -> datetime:
    """Every transport's ids begin with the time; on Kafka it is its sender's, and may be nonsense."""
    given = entry_id.partition("-")[0]
    return from_ms(min(int(given or 0), _LATEST_MS))


def _event(letter: RefreshDeadLetter) -> RefreshEvent:
    try:
        return RefreshEvent.decode(bytes(letter.update.event))
    except UnknownSchema as error:
        raise InvalidArgument("letter", letter.id, f"cannot be replayed by this version: {error}") from None
