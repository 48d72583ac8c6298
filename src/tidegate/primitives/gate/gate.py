"""The gate: assigns permits to waiting jobs before dispatch, so no worker holds a job that it may not run.

Invariants, each kept by every script:
- a job is in the gate at most once: waiting, delayed, or dispatched with exactly one permit;
- a credential's calls in flight are its permits, its held units are theirs; both end only by `settle` or `rebuild`;
- what may be spent is what the upstream last reported, less held units, less the floor; unknown means one probe;
- a permit says until when its request must be sent; later it is exchanged, or returned;
- a refusal halves what its credential may do at once and per minute, once for all requests that were in flight;
- in a bucket with a gap one call is in flight at a time, and the next permit comes no sooner than the gap after it.

Repair after a crash. Between the commit in SQL and `offer`: the job is in no queue. The caller recorded an intent
before, and recovery enqueues everything unfinished, which changes nothing for jobs that are in the gate. Between the
call and `settle`: a living worker takes the message over, with its permit. A server that lost its data: the limits that
SQL knows are restored, and everything unfinished is enqueued again.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidegate.core.arguments import require_name, require_not_negative, require_whole
from tidegate.core.clock import Clock, SystemClock, milliseconds
from tidegate.core.errors import InvalidArgument
from tidegate.core.ids import new_id
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.gate import scripts
from tidegate.primitives.gate.model import (
    LONGEST_MS,
    Admitted,
    Job,
    LearnedLimits,
    PoolRecord,
    PoolStatus,
    Settlement,
    read_status,
)
from tidegate.primitives.gate.scripts import EnqueueIntents, epoch_key, gate_keys
from tidegate.primitives.settings import CredentialLimits
from tidegate.storage.valkey import Key, Unit, Valkey

log = get_logger(__name__)

T = TypeVar("T")

_MOST_PER_CALL = 500
"""Jobs or results in one script call: enough to make the round trip cheap, few enough not to hold the server."""


@dataclass(frozen=True)
class Settled:
    """The result of `Gate.settle`."""

    settled: int
    stale: int
    """Number of ignored results: another worker has the message, or it was settled before."""
    entered: int
    dispatched: int


_LEARNED = ("concurrency", "per_minute", "begins_in_ms", "every_ms", "ends_in_ms")


@dataclass(frozen=True)
class Report:
    """The result of `Gate.report`."""

    rests_ms: int
    """How long the credential or its bucket is blocked."""
    learned: LearnedLimits | None
    """The new limits of the credential, to be stored in SQL."""


@dataclass(frozen=True)
class ShardStatus:
    """Numbers of jobs and blocked credentials of one shard."""

    waiting: int
    """Jobs that wait for a permit."""
    planned: int
    """Delayed jobs, and times at which a bucket can dispatch again."""
    blocked: int
    """Blocked credentials, and blocked buckets of credentials."""
    longest_ms: int
    """Ms until the end of the longest of these blocks; 0 without one."""


class Gate:
    """One shard: the pools that hash to it, the stream of jobs that may run, and the timers of both.

    Example:
        await context.gate.register("token-1", pool="weather", limits=CredentialLimits(concurrency=4))
        await context.gate.enqueue([Job(job="page-1", pool="weather", run="run-1", payload="/forecast?page=1")])
    """

    def __init__(
        self,
        valkey: Valkey,
        unit: Unit,
        *,
        stream: Key,
        group: str,
        wake: Key,
        settings: CredentialLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._valkey, self._unit, self._group = valkey, unit, require_name("group", group)
        self._keys = gate_keys(unit, stream=stream, wake=wake)
        self._settings = settings or CredentialLimits()
        self._clock = clock or SystemClock()
        self._permits = metrics.GATE_PERMITS.labels(unit.name)
        self.intents = EnqueueIntents(valkey, unit, wake=wake, clock=self._clock)
        """Enqueue intents of commits with jobs that are not enqueued yet."""

    async def register(self, credential: str, *, pool: str, limits: CredentialLimits | None = None) -> None:
        """Add a credential to `pool`, or change its limits. A credential belongs to one pool only.

        A retired credential becomes active again; the known state of its allowances is kept.
        """
        require_name("credential", credential)
        require_name("pool", pool)
        limits = limits or self._settings
        reply = await scripts.register(
            self._valkey,
            credential=credential,
            pool=pool,
            concurrency=limits.concurrency,
            first=limits.first_concurrency,
            per_minute=limits.per_minute,
            one_at_a_time="".join(f"{bucket}|" for bucket in sorted(limits.one_at_a_time)),
            floor=limits.floor,
            floor_share=limits.floor_share,
            window_ms=milliseconds(limits.window),
            patience_ms=milliseconds(limits.patience),
            metered=int(limits.metered),
            now_ms=self._clock.pinned_ms,
            **self._keys,
        )
        match reply:
            case [b"registered", int() as dispatched]:
                self._permits.inc(dispatched)
            case [b"elsewhere", bytes(), 1]:  # retired in that pool, so it can be registered in this one
                await self.dismiss(credential)
                await self.register(credential, pool=pool, limits=limits)
            case [b"elsewhere", bytes() as other, 0]:
                raise InvalidArgument("credential", credential, f"it belongs to the pool {other.decode()!r}")
            case _:
                raise AssertionError(f"register.lua replied {reply!r}")

    async def dismiss(self, credential: str) -> None:
        """Retire a credential; jobs that prefer it wait for another credential of its pool."""
        require_name("credential", credential)
        # One call handles a limited number of jobs, so that the server is not blocked.
        while await scripts.dismiss(self._valkey, credential=credential, now_ms=self._clock.pinned_ms, **self._keys):
            pass

    async def pace(self, pool: str, bucket: str, *, gap_ms: int, one_at_a_time: bool = False, rest_ms: int = 0) -> None:
        """Set how fast a bucket of a pool may be called, by all its credentials together.

        With a gap, or with `one_at_a_time`, one call is in flight at a time, and the next permit is given `gap_ms`
        after its end. A new bucket counts from now. With `rest_ms`, no call is made for at least that time. If only
        few credentials of the pool are not blocked, the gap grows automatically.
        """
        require_name("pool", pool)
        require_name("bucket", bucket)
        require_whole("gap_ms", gap_ms, least=0, most=LONGEST_MS)
        require_whole("rest_ms", rest_ms, least=0, most=LONGEST_MS)
        dispatched = await scripts.set_pace(
            self._valkey,
            pool=pool,
            bucket=bucket,
            gap_ms=gap_ms,
            one_at_a_time=int(one_at_a_time),
            pause_ms=rest_ms,
            now_ms=self._clock.pinned_ms,
            **self._keys,
        )
        self._permits.inc(dispatched)

    async def enqueue(self, jobs: Sequence[Job]) -> int:
        """Enqueue jobs; returns how many were new. A job that is in the gate already stays unchanged."""
        entered = 0
        for some in _batches(jobs):
            new, dispatched = await scripts.enqueue(
                self._valkey, new_jobs=some, now_ms=self._clock.pinned_ms, **self._keys
            )
            entered += new
            self._permits.inc(dispatched)
        return entered

    async def settle(self, results: Sequence[Settlement], *, follow_ups: Sequence[Job] = ()) -> Settled:
        """End permits: acknowledge messages, record reported allowances, enqueue follow-up jobs, and dispatch."""
        # Jobs that do not fit into one call come first: after the last acknowledgement, recovery would miss them.
        totals = [0, 0, await self.enqueue(follow_ups[_MOST_PER_CALL:]), 0]
        offers = follow_ups[:_MOST_PER_CALL]
        # Without results, one call is still needed for the follow-ups.
        for some in list(_batches(results)) or [results]:
            reply = await scripts.settle(
                self._valkey,
                group=self._group,
                results=some,
                follow_ups=offers,
                now_ms=self._clock.pinned_ms,
                **self._keys,
            )
            # The first call has enqueued the follow-ups, together with its acknowledgements.
            offers, totals = [], [total + more for total, more in zip(totals, reply, strict=True)]
        settled = Settled(*totals)
        self._permits.inc(settled.dispatched)
        return settled

    async def report(self, refused: Settlement) -> Report:
        """Record a refusal before its result is committed, so that other processes stop at once.

        The settlement that follows must have `is_reported`.
        """
        rests_ms, *learned = await scripts.report_refusal(
            self._valkey, results=[refused], now_ms=self._clock.pinned_ms, **self._keys
        )
        return Report(rests_ms, None if learned == [-1] else LearnedLimits(**dict(zip(_LEARNED, learned, strict=True))))

    async def confirm(self, admitted: Sequence[Admitted]) -> list[int | None]:
        """Check whether the requests of these permits may be sent now.

        Returns None for each that may; otherwise the minimum ms for which the credential is blocked, 0 for another
        reason. A permit that is too old is exchanged for a new one, if one is available.
        """
        replies: list[list[int]] = []
        for some in _batches(admitted):
            asked = [(one.credential, one.bucket, one.message, one.by) for one in some]
            replies += await scripts.confirm_permits(
                self._valkey, asked=asked, now_ms=self._clock.pinned_ms, **self._keys
            )
        return [None if reply == [1] else reply[1] for reply in replies]

    async def open(self, pool: str) -> int:
        """Dispatch jobs of a pool, as every other step does too; returns the number of dispatched jobs."""
        require_name("pool", pool)
        dispatched = await scripts.dispatch(self._valkey, pool=pool, now_ms=self._clock.pinned_ms, **self._keys)
        self._permits.inc(dispatched)
        return dispatched

    async def forget(self, jobs: Sequence[str]) -> int:
        """Remove waiting jobs; returns how many were waiting. Dispatched jobs are left to their workers."""
        forgotten = 0
        for some in _batches(jobs):
            gone, _ = await scripts.remove_jobs(self._valkey, names=some, now_ms=self._clock.pinned_ms, **self._keys)
            forgotten += gone
        return forgotten

    async def fire(self) -> int | None:
        """Process everything that is due; returns the ms until the next due time, None if nothing is planned."""
        while True:
            _, dispatched, due_in_ms = await scripts.fire_due(
                self._valkey, most=_MOST_PER_CALL // 2, now_ms=self._clock.pinned_ms, **self._keys
            )
            self._permits.inc(dispatched)
            # 0 means that more is due than one call may process; a negative number, that nothing is planned.
            if due_in_ms != 0:
                return due_in_ms if due_in_ms > 0 else None

    async def status(self, pool: str) -> PoolStatus:
        """The credentials of a pool, their allowances, and the waiting jobs."""
        require_name("pool", pool)
        return read_status(await scripts.status(self._valkey, pool=pool, now_ms=self._clock.pinned_ms, **self._keys))

    async def lengths(self) -> tuple[int, int]:
        """Numbers of waiting jobs and of planned entries; a cheap call."""
        waiting = await self._valkey.execute("ZCARD", self._keys["waiting"])
        return waiting, await self._valkey.execute("ZCARD", self._keys["due"])

    async def shard_status(self) -> ShardStatus:
        """The status of the shard for metrics; counted in pages, so that the server is not blocked."""
        waiting, delayed = await self.lengths()
        blocked, longest_ms, cursor = 0, 0, "0"
        while True:
            after, more, opens_in_ms = await scripts.count_blocked(
                self._valkey, cursor=cursor, now_ms=self._clock.pinned_ms, **self._keys
            )
            blocked, longest_ms, cursor = blocked + more, max(longest_ms, opens_in_ms), after.decode()
            if cursor == "0":
                break
        metrics.GATE_WAITING.labels(self._unit.name).set(waiting)
        metrics.DELAYED_QUEUE_SIZE.labels(self._unit.name).set(delayed)
        metrics.RATE_LIMIT_TOKENS_BLOCKED.labels(self._unit.name).set(blocked)
        metrics.RATE_LIMIT_LONGEST_BLOCK.labels(self._unit.name).set(longest_ms / 1000)
        return ShardStatus(waiting, delayed, blocked, longest_ms)

    async def needs_rebuild(self) -> bool:
        """Whether the server has no data of this gate: it is new, or the server lost its data."""
        return not await self._valkey.execute("EXISTS", epoch_key(self._unit))

    async def remind(self, memory: PoolRecord) -> None:
        """Restore the record of a pool after a loss of data, before its credentials are registered again.

        It can only reduce what the gate allows.
        """
        require_name("pool", memory.pool)
        require_not_negative("started", memory.started)
        require_not_negative("running", memory.running)
        missing = await scripts.restore_limits(
            self._valkey,
            pool=memory.pool,
            started=memory.started,
            running=memory.running,
            notes=memory.notes,
            now_ms=self._clock.pinned_ms,
            **self._keys,
        )
        if missing:
            log.warning("gate.reminded", gate=self._unit.name, pool=memory.pool, calls_missing=missing)

    async def rebuild(self, unfinished: AsyncIterable[Sequence[Job]]) -> int:
        """Synchronize the gate with SQL: free permits without a message, then enqueue all unfinished jobs.

        It can be called at any time; jobs in the gate stay unchanged. Returns the number of missing jobs.
        """
        # First, so that the jobs that are enqueued below can get what is freed.
        freed = await self._free_lost_permits()
        missing = 0
        async for jobs in unfinished:
            missing += await self.enqueue(jobs)
        # Last: the key says that the gate was synchronized with SQL since the server had no data.
        await self._valkey.execute("SET", epoch_key(self._unit), new_id())
        log.info("gate.rebuilt", gate=self._unit.name, jobs_missing=missing, permits_freed=freed)
        return missing

    async def _free_lost_permits(self) -> int:
        """Permits are listed before messages: one without a message was lost, or was settled since."""
        listed = [permit.decode() async for permit in self._pages("HSCAN", self._keys["permits"])]
        listed = [permit for permit in listed if permit.isdecimal()]
        # Messages stay in the stream until they are settled, so this range also finds those that workers hold.
        alive = {fields[b"permit"].decode().partition("|")[0] async for fields in self._messages()}
        lost = [permit for permit in listed if permit not in alive]
        freed = 0
        for some in _batches(lost):
            freed += await scripts.free_permits(self._valkey, lost=some, now_ms=self._clock.pinned_ms, **self._keys)
        return freed

    async def _pages(self, command: str, key: Key) -> AsyncIterator[bytes]:
        cursor: bytes | int = 0
        while True:
            cursor, page = await self._valkey.execute(command, key, cursor, "COUNT", _MOST_PER_CALL)
            for field in page:
                yield field
            if int(cursor) == 0:
                return

    async def _messages(self) -> AsyncIterator[dict[bytes, bytes]]:
        start = "-"
        while entries := await self._valkey.execute(
            "XRANGE", self._keys["stream"], start, "+", "COUNT", _MOST_PER_CALL
        ):
            for _, fields in entries:
                yield fields
            start = f"({entries[-1][0].decode()}"


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _MOST_PER_CALL):
        yield items[start : start + _MOST_PER_CALL]
