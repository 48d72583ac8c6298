"""Dead letters: refreshes that failed permanently, to be replayed or dropped by an operator."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from tidegate.core.clock import from_ms
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Outcome
from tidegate.system import DeadLetterStore, DeadLetterSummary
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason, RefreshEvent, UnknownSchema, as_json
from tidegate.systems.snapshots.reads import SnapshotReader
from tidegate.systems.snapshots.requests import RefreshPublisher, RefreshRequest
from tidegate.systems.snapshots.transports.protocol import DeadEntry, Transport

_AT_ONCE = 20
_LONGEST_MESSAGE = 2000
_LATEST_MS = 253_402_300_799_000
"""The year 9999."""


class RefreshDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter and its id."""

    id: str
    update: FailedRefresh


class RefreshDeadLetters:
    """The dead letters of this installation."""

    def __init__(
        self, transport: Transport, requests: RefreshPublisher, coalescer: Coalescer, reader: SnapshotReader
    ) -> None:
        self._transport, self._requests, self._coalescer, self._reader = transport, requests, coalescer, reader

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[RefreshDeadLetter]:
        """Return up to `limit` dead letters, the oldest first, after the id `after`."""
        return [_letter(entry) for entry in await self._transport.dead(after=after, limit=limit)]

    async def get(self, letter_id: str) -> RefreshDeadLetter:
        """Return one dead letter; raises `NotFound`."""
        return _letter(await self._transport.dead_one(letter_id))

    async def replay(self, letter_id: str) -> Outcome:
        """Request the refresh again with a new version, and drop the dead letter.

        If a refresh of the subject is already queued or running, nothing is published and the dead letter stays, since
        the process that holds the lock may have died.

        Raises `NotFound`, `InvalidArgument` if this version cannot read the event, and `Unavailable`.
        """
        letter = await self.get(letter_id)
        event = _event(letter)
        # The lock was released with the failure, unless the worker died at that moment.
        await self._coalescer.release(event.subject_id, event.version)
        request = RefreshRequest(
            subject=event.subject,
            priority=event.priority,
            reason=event.reason,
            known_version=event.version,
            upstream_id=event.upstream_id,
            correlation_id=event.correlation_id,
        )
        # Otherwise readers would not wait for this refresh, because the last one failed a moment ago.
        with self._reader.expecting(event.subject):
            outcome = await self._requests.publish(request)
        # Drop it only after the event is published: a crash in between leaves a letter too many, not one too few.
        if not isinstance(outcome, AlreadyProcessing):
            await self._transport.drop(letter_id)
        return outcome

    async def replay_several(self, letter_ids: Sequence[str]) -> int:
        """Replay dead letters, some at a time; return how many.

        The others stay: their subject is being refreshed, this version cannot read them, or another caller replayed or
        dropped them in the meantime.
        """
        replayed = 0
        for start in range(0, len(letter_ids), _AT_ONCE):
            batch = [self._is_replayed(letter_id) for letter_id in letter_ids[start : start + _AT_ONCE]]
            replayed += sum(await asyncio.gather(*batch))
        return replayed

    async def _is_replayed(self, letter_id: str) -> bool:
        try:
            return not isinstance(await self.replay(letter_id), AlreadyProcessing)
        except (InvalidArgument, NotFound):
            return False

    async def drop(self, letter_id: str) -> bool:
        """Delete a dead letter; False if there is none."""
        return await self._transport.drop(letter_id)


def dead_letter_store(dead: RefreshDeadLetters, transport: Transport) -> DeadLetterStore:
    """The dead letters of snapshots, as operators group them."""

    async def count() -> Mapping[str, int]:
        return {"": await transport.dead_count()}

    async def page(after: str | None, limit: int) -> Sequence[DeadLetterSummary]:
        return [_summary(letter) for letter in await dead.list(after=after, limit=limit)]

    async def discard(letter_ids: Sequence[str]) -> int:
        return sum([await dead.drop(letter_id) for letter_id in letter_ids])

    server = "the transport of snapshots"
    return DeadLetterStore("snapshots", "snapshots", count, page, dead.replay_several, discard, server=server)


def _summary(letter: RefreshDeadLetter) -> DeadLetterSummary:
    failed = letter.update
    kind, reason = failed.subject_id.partition("/")[0], f"{failed.reason}: {failed.message}"
    return DeadLetterSummary(letter.id, "", kind, reason, failed.failed_at)


def _letter(entry: DeadEntry) -> RefreshDeadLetter:
    """Decode an entry. One that this version cannot read is listed too, so that an operator can drop it."""
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
    """Return the time in an id, which all ids begin with. Bounded, since on Kafka it comes from the sender."""
    given = entry_id.partition("-")[0]
    return from_ms(min(int(given or 0), _LATEST_MS))


def _event(letter: RefreshDeadLetter) -> RefreshEvent:
    try:
        return RefreshEvent.decode(bytes(letter.update.event))
    except UnknownSchema as error:
        raise InvalidArgument("id", letter.id, f"cannot be replayed by this version: {error}") from None
