"""Refreshes that failed for good: to be looked at, then replayed or dropped by somebody who knows why."""

import msgspec

from tidegate.flow.coalescer import Coalescer, Outcome
from tidegate.kernel.errors import InvalidArgument
from tidegate.snapshots.event import DeadUpdate, UnknownSchema, UpdateEvent
from tidegate.snapshots.requests import UpdateRequests, Wish
from tidegate.snapshots.transport import DeadEntry, Transport


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter, and what it is called."""

    id: str
    update: DeadUpdate


class DeadUpdates:
    """The dead letters of all topics."""

    def __init__(self, transport: Transport, requests: UpdateRequests, coalescer: Coalescer) -> None:
        self._transport, self._requests, self._coalescer = transport, requests, coalescer

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[DeadLetter]:
        """The oldest `limit` of those behind `after`, or of all."""
        return [_letter(entry) for entry in await self._transport.dead(after=after, limit=limit)]

    async def get(self, letter_id: str) -> DeadLetter:
        """One of them; raises `NotFound`."""
        return _letter(await self._transport.dead_one(letter_id))

    async def replay(self, letter_id: str) -> Outcome:
        """Ask for the refresh again, under a new version, and drop the letter.

        Where somebody is at it already, nothing is published, and the letter is dropped too: should he fail, there
        will be another.
        """
        letter = await self.get(letter_id)
        event = _event(letter)
        # The lock of what failed is kept, so that it is not called again at once; whoever replays wants just that.
        await self._coalescer.release(event.subject_id, event.version)
        outcome = await self._requests.ask(
            Wish(
                subject=event.subject,
                priority=event.priority,
                reason=event.reason,
                known_version=event.version,
                upstream_id=event.upstream_id,
                correlation_id=event.correlation_id,
            )
        )
        await self._transport.drop(letter_id)
        return outcome

    async def drop(self, letter_id: str) -> bool:
        """Give it up for good; False when it was not there."""
        return await self._transport.drop(letter_id)


def _letter(entry: DeadEntry) -> DeadLetter:
    return DeadLetter(entry.id, DeadUpdate.decode(entry.value))


def _event(letter: DeadLetter) -> UpdateEvent:
    try:
        return UpdateEvent.decode(bytes(letter.update.event))
    except UnknownSchema as error:
        raise InvalidArgument("letter", letter.id, f"cannot be replayed by this version: {error}") from None
