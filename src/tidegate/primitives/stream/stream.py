"""A stream with one consumer group.

A message is delivered to one consumer, which acknowledges it after its effects are committed. Acknowledging deletes it,
so the stream contains exactly the unfinished messages. Other messages are redelivered in one of these ways:

    retry      the consumer failed to process it            count + 1
    fail       no consumer can process it                   dead letter at once
    release    the consumer shuts down                      count unchanged, unless `counts`
    take_over  the process of the consumer died             count + 1
    sweep_idle it was held for too long                     count + 1, unless not `counts`

Messages that were being delivered through another queue (see `passage`) are redelivered by the last two uncounted.

A redelivered message becomes a *new* entry at the end of the stream. This wakes blocked readers and makes the old id
void, so a consumer that was wrongly declared dead cannot affect it any more. If the count would exceed
`max_deliveries`, the message becomes a dead letter instead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Raw

from tidegate.core.arguments import require_name, require_not_negative
from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.primitives.settings import StreamSettings
from tidegate.primitives.stream.consumer import Consumer
from tidegate.primitives.stream.message import (
    BATCH,
    ConsumerStatus,
    DeadLetters,
    StreamKeys,
    StreamStatus,
    id_batches,
    in_batches,
    pack_messages,
)
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script

log = get_logger(__name__)

WAYPOINT = "onward"
"""Consumer name of messages with tickets in another queue; see `_waypoint.lua`."""

_LONGEST_REASON = 2000
_DIED = "the process that held it died"
_IDLE = "it was not acknowledged in time"


@lua_script("add.lua")
async def _add(valkey: Valkey, *, stream: Key, added: Key, messages: Raw, remember_ms: int) -> int: ...


@lua_script("ack.lua")
async def _ack(valkey: Valkey, *, stream: Key, group: str, ids: list[str]) -> int: ...


@lua_script("ensure_group.lua")
async def _ensure_group(valkey: Valkey, *, stream: Key, group: str) -> int: ...


@lua_script("empty.lua")
async def _empty(
    valkey: Valkey,
    *,
    stream: Key,
    dead: Key,
    group: str,
    consumer: str,
    limit: int,
    most: int,
    reason: str,
    now_ms: int | None,
) -> list[int]: ...


@lua_script("refuse.lua")
async def _refuse(
    valkey: Valkey,
    *,
    stream: Key,
    dead: Key,
    group: str,
    consumer: str,
    ids: list[str],
    most: int,
    reason: str,
    now_ms: int | None,
) -> list[int]: ...


@lua_script("held.lua")
async def _held(valkey: Valkey, *, stream: Key, group: str, consumer: str, ids: list[str]) -> list[bytes]: ...


@lua_script("sweep.lua")
async def _sweep(
    valkey: Valkey,
    *,
    stream: Key,
    dead: Key,
    group: str,
    after: str,
    limit: int,
    idle_ms: int,
    most: int,
    reason: str,
    now_ms: int | None,
) -> list[Any]: ...


@lua_script("status.lua")
async def _status(valkey: Valkey, *, stream: Key, dead: Key, group: str) -> list[Any]: ...


class Stream:
    """Messages for a group of consumers. Every method may be called from any process.

    Example:
        stream = Stream(valkey, valkey.unit("mail"), "letters")
        await stream.add([{b"to": b"ada"}])
        messages = await stream.consumer("worker-1").read(count=10, within_s=1)
        await stream.ack(message.id for message in messages)
    """

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        name: str,
        settings: StreamSettings | None = None,
        clock: Clock | None = None,
        *,
        one_of: str | None = None,
        shown_as: str | None = None,
    ) -> None:
        """`one_of` is the label in metrics for many streams of one kind; their depths are not exported.

        `shown_as` is its name in metrics, logs and dead letters, where streams of several units have the same name.
        """
        self.name, self.keys = shown_as or name, StreamKeys(unit, name)
        label, self._exports_depth = one_of or self.name, one_of is None
        self._dead_lettered = metrics.STREAM_DEAD_LETTERED.labels(label)
        self._recovered = metrics.XAUTOCLAIM_RECOVERED.labels(label)
        self.settings = settings or StreamSettings()
        self.dead_letters = DeadLetters(valkey, self.keys)
        self._valkey, self._clock = valkey, clock or SystemClock()
        self.on_missing: Callable[[], object] = lambda: None
        """Called when a reader finds that the group is missing: the server is new, or it lost its data."""

    def consumer(self, owner: str, suffix: str = "") -> Consumer:
        """A consumer of the process `owner`; different suffixes make several consumers."""
        return Consumer(self._valkey, self, consumer_name(owner, suffix))

    async def add(self, messages: Sequence[Mapping[bytes, bytes]], *, token: str | None = None) -> None:
        """Add messages in order, in batches of `BATCH`. Repeating a call with the same token adds nothing."""
        # All messages are checked and encoded before the first is sent, so an invalid one leaves nothing behind.
        packed = [pack_messages(batch) for batch in in_batches(messages)]
        token = new_id() if token is None else require_name("token", token)
        remember_ms = milliseconds(self.settings.remember_adds_for)
        for n, batch in enumerate(packed):
            # Each batch has a mark of its own, so a repeated call adds exactly the batches that are missing.
            added = self.keys.added(f"{token}.{n}")
            await _add(self._valkey, stream=self.keys.stream, added=added, messages=batch, remember_ms=remember_ms)

    async def ack(self, ids: Iterable[str]) -> int:
        """Acknowledge and delete messages. Returns how many there were; unknown ids are ignored."""
        keys, group = self.keys, self.settings.group
        return sum([await _ack(self._valkey, stream=keys.stream, group=group, ids=batch) for batch in id_batches(ids)])

    async def held_by(self, consumer: str, ids: Iterable[str]) -> set[str]:
        """The ids that `consumer` holds; all of them if the server lost its data."""
        stream, group, held = self.keys.stream, self.settings.group, set[str]()
        for batch in id_batches(ids):
            found = await _held(self._valkey, stream=stream, group=group, consumer=consumer, ids=batch)
            held.update(each.decode() for each in found)
        return held

    async def retry(self, consumer: str, ids: Iterable[str], reason: str) -> int:
        """Redeliver messages that `consumer` holds; after the last attempt, dead-letter them. Returns how many."""
        return await self._refuse_all(consumer, ids, reason, most=self.settings.max_deliveries)

    async def fail(self, consumer: str, ids: Iterable[str], reason: str) -> int:
        """Dead-letter messages that `consumer` holds, because no consumer can process them. Returns how many."""
        return await self._refuse_all(consumer, ids, reason, most=1)

    async def release(self, consumer: str, *, counts: bool = False) -> int:
        """Redeliver all messages of `consumer` and remove it from the group. With `counts`, the delivery counts."""
        most = self.settings.max_deliveries if counts else 0
        return await self._empty_all(require_name("consumer", consumer), _DIED, most)

    async def take_over(self, owner: str) -> int:
        """Redeliver or dead-letter the messages of the dead process `owner`. Returns how many there were."""
        named = consumer_name(owner)
        consumers = [each.name for each in (await self.status()).consumers]
        # A slash ends the name of the process, so a process with a longer name does not match.
        theirs = [name for name in consumers if name == named or name.startswith(f"{named}/")]
        most = self.settings.max_deliveries
        # Messages on their way through another queue were not executed, so their delivery does not count.
        taken = sum([await self._empty_all(name, _DIED, 0 if is_waypoint(name) else most) for name in theirs])
        self._note_taken(taken, owner=owner)
        return taken

    async def sweep_idle(self, idle_limit: timedelta | None = None, *, counts: bool = True) -> int:
        """Redeliver or dead-letter messages that were held longer than `idle_limit` (default: that of the settings).

        Without `counts`, nothing becomes a dead letter, for delays that are not the fault of the message.
        Returns in how many ms the next message can exceed the limit.
        """
        idle_ms = milliseconds(self.settings.idle_limit if idle_limit is None else idle_limit)
        require_not_negative("idle_limit", idle_ms)
        after, taken, soonest_ms = "", 0, idle_ms
        while True:
            redelivered, dead_lettered, last, page_ms = await _sweep(
                self._valkey,
                **self._both_keys(),
                group=self.settings.group,
                after=after,
                limit=BATCH,
                idle_ms=idle_ms,
                most=self.settings.max_deliveries if counts else 0,
                reason=_IDLE,
                now_ms=self._clock.pinned_ms,
            )
            self._note_dead_lettered(dead_lettered, _IDLE)
            taken += redelivered + dead_lettered
            # Each page names its earliest time; the earliest of all pages counts.
            after, soonest_ms = last.decode(), min(soonest_ms, page_ms)
            if not after:
                break
        self._note_taken(taken, idle_ms=idle_ms)
        return soonest_ms

    async def status(self) -> StreamStatus:
        """Depth, pending, lag, dead letters and consumers, at one point in time."""
        depth, dead, found = await _status(self._valkey, **self._both_keys(), group=self.settings.group)
        consumers = [ConsumerStatus(name.decode(), pending, idle_ms) for name, pending, idle_ms in found]
        pending = sum(each.pending for each in consumers)
        # Acknowledged messages are deleted, so all that are not pending were not delivered.
        status = StreamStatus(depth, pending, max(depth - pending, 0), dead, sorted(consumers))
        if self._exports_depth:
            metrics.STREAM_DEPTH.labels(self.name).set(status.depth)
            metrics.STREAM_PENDING_COUNT.labels(self.name).set(status.pending)
            metrics.STREAM_CONSUMER_LAG.labels(self.name).set(status.lag)
            metrics.STREAM_DEAD_LETTERS.labels(self.name).set(status.dead)
        return status

    async def holders(self) -> set[str]:
        """The processes that hold messages."""
        found = [each.name for each in (await self.status()).consumers if each.pending]
        # The waypoint is no process. Its messages are checked by their age (`TicketedStream.overdue`).
        return {owner_of(name) for name in found if name != WAYPOINT}

    async def restore_group(self, error: Exception) -> None:
        """Create the group if `error` says that it is missing; otherwise raise `error`."""
        # Redis 7.0 answers UNBLOCKED to a read if the stream was deleted meanwhile; later servers answer NOGROUP.
        if not str(error.__cause__ or error).startswith(("NOGROUP", "UNBLOCKED")):
            raise error
        await _ensure_group(self._valkey, stream=self.keys.stream, group=self.settings.group)
        self.on_missing()

    async def _refuse_all(self, consumer: str, ids: Iterable[str], reason: str, *, most: int) -> int:
        require_name("consumer", consumer)
        if not reason:
            raise InvalidArgument("reason", reason, "must not be empty: a dead letter needs one")
        held, reason = 0, fit_to_keep(reason, most=_LONGEST_REASON)
        for batch in id_batches(ids):
            redelivered, dead_lettered = await _refuse(
                self._valkey,
                **self._both_keys(),
                group=self.settings.group,
                consumer=consumer,
                ids=batch,
                most=most,
                reason=reason,
                now_ms=self._clock.pinned_ms,
            )
            self._note_dead_lettered(dead_lettered, reason)
            held += redelivered + dead_lettered
        return held

    async def _empty_all(self, consumer: str, reason: str, most: int) -> int:
        taken, more = 0, 1
        # The last call also removes the consumer, in the same step that finds it empty.
        while more:
            redelivered, dead_lettered, more = await _empty(
                self._valkey,
                **self._both_keys(),
                group=self.settings.group,
                consumer=consumer,
                limit=BATCH,
                most=most,
                reason=reason,
                now_ms=self._clock.pinned_ms,
            )
            self._note_dead_lettered(dead_lettered, reason)
            taken += redelivered + dead_lettered
        return taken

    def _both_keys(self) -> dict[str, Any]:
        return {"stream": self.keys.stream, "dead": self.keys.dead}

    def _note_dead_lettered(self, count: int, reason: str) -> None:
        if count:
            self._dead_lettered.inc(count)
            log.warning("stream.dead_lettered", stream=self.name, messages=count, reason=reason)

    def _note_taken(self, taken: int, **facts: object) -> None:
        if taken:
            self._recovered.inc(taken)
            log.warning("stream.taken_over", stream=self.name, messages=taken, **facts)


def consumer_name(owner: str, suffix: str = "") -> str:
    """Name of a consumer: the name of its process, with a suffix if the process has several."""
    if "/" in require_name("owner", owner):
        raise InvalidArgument("owner", owner, "must not contain /, which separates it from a consumer's suffix")
    return f"{owner}/{require_name('suffix', suffix)}" if suffix else owner


def owner_of(consumer: str) -> str:
    """The process that a consumer belongs to."""
    return consumer.partition("/")[0]


def is_waypoint(consumer: str) -> bool:
    """Whether messages of this consumer name are on their way to a worker through another queue."""
    return consumer == WAYPOINT or consumer.endswith(f"/{WAYPOINT}")
