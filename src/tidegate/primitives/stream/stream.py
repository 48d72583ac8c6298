"""A stream with one consumer group.

A message is delivered to one consumer, which acknowledges it when its effects are safe; with that it is deleted, so
the stream holds exactly what is not done. What a consumer does not acknowledge comes back by one of these ways:

    retry      the consumer could not handle it             count + 1
    fail       the consumer knows that nobody can           dead letter at once
    release    the consumer leaves in good order            count stays, unless told to count
    take_over  the consumer's process died                  count + 1
    sweep_idle it was held too long, whatever the cause     count + 1, unless told not to

What was only on its way to a worker by another queue (see `passage`) comes back by the last two uncounted.

To come back means to become a *new* entry at the end of the stream. That wakes readers that wait, and makes the old id
worthless: whatever a consumer that was believed dead still does with it changes nothing. Where the count would pass
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
from tidegate.primitives.stream.batches import BATCH, id_batches, in_batches
from tidegate.primitives.stream.consumer import Consumer
from tidegate.primitives.stream.dead_letters import DeadLetters
from tidegate.primitives.stream.keys import StreamKeys
from tidegate.primitives.stream.message import ConsumerStatus, StreamStatus, pack_messages
from tidegate.primitives.stream.settings import StreamSettings
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script

log = get_logger(__name__)

WAYPOINT = "onward"
"""The name in which messages stand that reach their workers by another queue; see `_waypoint.lua`."""

_LONGEST_REASON = 2000
_DIED = "the process that held it died"
_IDLE = "nobody acknowledged it in time"


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
    """Messages for a group of consumers. Every method may be called from any process."""

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        name: str,
        settings: StreamSettings | None = None,
        clock: Clock | None = None,
        *,
        one_of: str | None = None,
    ) -> None:
        """`one_of` is what metrics call it where there are many of a kind; their depths are not told one by one."""
        self.name, self.keys = name, StreamKeys(unit, name)
        self._told_as, self._tells_depth = one_of or name, one_of is None
        self._buried = metrics.STREAM_DEAD_LETTERED.labels(self._told_as)
        self._recovered = metrics.XAUTOCLAIM_RECOVERED.labels(self._told_as)
        self.settings = settings or StreamSettings()
        self.dead_letters = DeadLetters(valkey, self.keys)
        self._valkey, self._clock = valkey, clock or SystemClock()
        self.on_missing: Callable[[], object] = lambda: None
        """Called when a reader finds that the server knows no group: it is new, or it lost its data."""

    def consumer(self, owner: str, suffix: str = "") -> Consumer:
        """A reader that belongs to the process `owner`; with different suffixes, several of them."""
        return Consumer(self._valkey, self, consumer_name(owner, suffix))

    async def add(self, messages: Sequence[Mapping[bytes, bytes]], *, token: str | None = None) -> None:
        """Add messages in this order; each `BATCH` of them at once.

        A call that is repeated with the same token, by us after a broken connection or by the caller, adds nothing a
        second time.
        """
        packed = [pack_messages(batch) for batch in in_batches(messages)]
        token = new_id() if token is None else require_name("token", token)
        remember_ms = milliseconds(self.settings.remember_adds_for)
        for n, batch in enumerate(packed):
            added = self.keys.added(f"{token}.{n}")
            await _add(self._valkey, stream=self.keys.stream, added=added, messages=batch, remember_ms=remember_ms)

    async def ack(self, ids: Iterable[str]) -> int:
        """These are done: acknowledge and delete them. How many there were; an id that is gone changes nothing."""
        keys, group = self.keys, self.settings.group
        return sum([await _ack(self._valkey, stream=keys.stream, group=group, ids=batch) for batch in id_batches(ids)])

    async def held_by(self, consumer: str, ids: Iterable[str]) -> set[str]:
        """Which of these `consumer` holds; all, where the server lost its data."""
        stream, group, held = self.keys.stream, self.settings.group, set[str]()
        for batch in id_batches(ids):
            found = await _held(self._valkey, stream=stream, group=group, consumer=consumer, ids=batch)
            held.update(each.decode() for each in found)
        return held

    async def retry(self, consumer: str, ids: Iterable[str], reason: str) -> int:
        """Let somebody try again those that `consumer` holds, unless it was the last try. How many it held."""
        return await self._refuse_all(consumer, ids, reason, most=self.settings.max_deliveries)

    async def fail(self, consumer: str, ids: Iterable[str], reason: str) -> int:
        """Bury those that `consumer` holds: nobody could handle them. How many it held."""
        return await self._refuse_all(consumer, ids, reason, most=1)

    async def release(self, consumer: str, *, counts: bool = False) -> int:
        """Give back all that `consumer` holds, and take it out of the group. It `counts` where it was cut off."""
        most = self.settings.max_deliveries if counts else 0
        return await self._empty_all(require_name("consumer", consumer), _DIED, most)

    async def take_over(self, owner: str) -> int:
        """Give what the dead process `owner` held to others, or bury it; how many messages that were."""
        named = consumer_name(owner)
        consumers = [each.name for each in (await self.status()).consumers]
        theirs = [name for name in consumers if name == named or name.startswith(f"{named}/")]
        most = self.settings.max_deliveries
        taken = sum([await self._empty_all(name, _DIED, 0 if is_waypoint(name) else most) for name in theirs])
        self._note_taken(taken, owner=owner)
        return taken

    async def sweep_idle(self, idle_limit: timedelta | None = None, *, counts: bool = True) -> int:
        """Give to others, or bury, what has been held for longer than `idle_limit` (by default that of the settings).

        Where it `counts` not, nothing is buried: to be held for long may be nobody's fault.
        Returns in how many ms the next message can have been held that long: until then nobody needs to look again.
        """
        idle_ms = milliseconds(self.settings.idle_limit if idle_limit is None else idle_limit)
        require_not_negative("idle_limit", idle_ms)
        after, taken, soonest_ms = "", 0, idle_ms
        while True:
            given, buried, last, page_ms = await _sweep(
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
            self._note_dead_lettered(buried, _IDLE)
            after, taken, soonest_ms = last.decode(), taken + given + buried, min(soonest_ms, page_ms)
            if not after:
                break
        self._note_taken(taken, idle_ms=idle_ms)
        return soonest_ms

    async def status(self) -> StreamStatus:
        """Depth, pending, lag, dead letters and consumers, all of one moment."""
        depth, dead, found = await _status(self._valkey, **self._both_keys(), group=self.settings.group)
        consumers = [ConsumerStatus(name.decode(), pending, idle_ms) for name, pending, idle_ms in found]
        pending = sum(each.pending for each in consumers)
        # What is done is deleted, so whatever is not pending has not been delivered.
        status = StreamStatus(depth, pending, max(depth - pending, 0), dead, sorted(consumers))
        if self._tells_depth:
            metrics.STREAM_DEPTH.labels(self.name).set(status.depth)
            metrics.STREAM_PENDING_COUNT.labels(self.name).set(status.pending)
            metrics.STREAM_CONSUMER_LAG.labels(self.name).set(status.lag)
            metrics.STREAM_DEAD_LETTERS.labels(self.name).set(status.dead)
        return status

    async def holders(self) -> set[str]:
        """The processes that hold messages."""
        found = [each.name for each in (await self.status()).consumers if each.pending]
        return {owner_of(name) for name in found if name != WAYPOINT}

    async def restore_group(self, error: Exception) -> None:
        """Make the group if `error` says that there is none; raise `error` if it says anything else."""
        # Redis 7.0 says UNBLOCKED to a reader whose stream was deleted while it waited; later servers say NOGROUP.
        if not str(error.__cause__ or error).startswith(("NOGROUP", "UNBLOCKED")):
            raise error
        await _ensure_group(self._valkey, stream=self.keys.stream, group=self.settings.group)
        self.on_missing()

    async def _refuse_all(self, consumer: str, ids: Iterable[str], reason: str, *, most: int) -> int:
        require_name("consumer", consumer)
        if not reason:
            raise InvalidArgument("reason", reason, "must not be empty: a dead letter says why")
        held, reason = 0, fit_to_keep(reason, most=_LONGEST_REASON)
        for batch in id_batches(ids):
            given, buried = await _refuse(
                self._valkey,
                **self._both_keys(),
                group=self.settings.group,
                consumer=consumer,
                ids=batch,
                most=most,
                reason=reason,
                now_ms=self._clock.pinned_ms,
            )
            self._note_dead_lettered(buried, reason)
            held += given + buried
        return held

    async def _empty_all(self, consumer: str, reason: str, most: int) -> int:
        taken, more = 0, 1
        while more:
            given, buried, more = await _empty(
                self._valkey,
                **self._both_keys(),
                group=self.settings.group,
                consumer=consumer,
                limit=BATCH,
                most=most,
                reason=reason,
                now_ms=self._clock.pinned_ms,
            )
            self._note_dead_lettered(buried, reason)
            taken += given + buried
        return taken

    def _both_keys(self) -> dict[str, Any]:
        return {"stream": self.keys.stream, "dead": self.keys.dead}

    def _note_dead_lettered(self, buried: int, reason: str) -> None:
        if buried:
            self._buried.inc(buried)
            log.warning("stream.dead_lettered", stream=self.name, messages=buried, reason=reason)

    def _note_taken(self, taken: int, **facts: object) -> None:
        if taken:
            self._recovered.inc(taken)
            log.warning("stream.taken_over", stream=self.name, messages=taken, **facts)


def consumer_name(owner: str, suffix: str = "") -> str:
    """How the consumers of a process are called: its name, and a suffix where it has several."""
    if "/" in require_name("owner", owner):
        raise InvalidArgument("owner", owner, "must not contain /, which separates it from a consumer's suffix")
    return f"{owner}/{require_name('suffix', suffix)}" if suffix else owner


def owner_of(consumer: str) -> str:
    """The process to which a consumer of this name belongs."""
    return consumer.partition("/")[0]


def is_waypoint(consumer: str) -> bool:
    """Whether what stands in this name is in nobody's hands: it is on its way to a worker by another queue."""
    return consumer == WAYPOINT or consumer.endswith(f"/{WAYPOINT}")
