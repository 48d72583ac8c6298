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
from tidegate.primitives.gate.enqueue_intents import EnqueueIntents
from tidegate.primitives.gate.jobs import LONGEST_MS, Admitted, Job, Settlement
from tidegate.primitives.gate.keys import epoch_key, gate_keys
from tidegate.primitives.gate.memory import LearnedLimits, PoolRecord
from tidegate.primitives.gate.settings import CredentialLimits
from tidegate.primitives.gate.status import PoolStatus, read_status
from tidegate.storage.valkey import Key, Unit, Valkey

log = get_logger(__name__)

T = TypeVar("T")

_MOST_PER_CALL = 500
"""Jobs or results in one script call: enough to make the round trip cheap, few enough not to hold the server."""


@dataclass(frozen=True)
class Settled:
    """What one `settle` did."""

    settled: int
    stale: int
    """Results that came too late: another worker holds the message, or it was settled before."""
    entered: int
    dispatched: int


_LEARNED = ("concurrency", "per_minute", "begins_in_ms", "every_ms", "ends_in_ms")


@dataclass(frozen=True)
class Report:
    """What one `report` did."""

    rests_ms: int
    """For how long the credential rests, or its bucket."""
    learned: LearnedLimits | None
    """What the credential may do from now on, to be remembered elsewhere."""


@dataclass(frozen=True)
class ShardStatus:
    """One shard at a glance."""

    waiting: int
    """Jobs that wait for a permit."""
    planned: int
    """Jobs that are delayed, and gates that will open."""
    blocked: int
    """Credentials, or buckets of theirs, that may make no call at present."""
    longest_ms: int
    """In how many ms the last of them may call again; 0 where there is none."""


class Gate:
    """One shard: the pools that hash to it, the stream of jobs that may run, and the timers of both."""

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

    async def enrol(self, credential: str, *, pool: str, limits: CredentialLimits | None = None) -> None:
        """Add a credential to `pool`, or change its limits. A credential belongs to one pool only.

        One that was retired is good again; what is known of its allowances stays known.
        """
        require_name("credential", credential)
        require_name("pool", pool)
        limits = limits or self._settings
        reply = await scripts.enrol(
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
            case [b"enrolled", int() as dispatched]:
                self._permits.inc(dispatched)
            case [b"elsewhere", bytes(), 1]:  # it was retired there, so it may begin anew here
                await self.dismiss(credential)
                await self.enrol(credential, pool=pool, limits=limits)
            case [b"elsewhere", bytes() as other, 0]:
                raise InvalidArgument("credential", credential, f"it belongs to the pool {other.decode()!r}")
            case _:
                raise AssertionError(f"enrol.lua replied {reply!r}")

    async def dismiss(self, credential: str) -> None:
        """Use this credential no more; jobs that wanted it wait for another of its pool."""
        require_name("credential", credential)
        while await scripts.dismiss(self._valkey, credential=credential, now_ms=self._clock.pinned_ms, **self._keys):
            pass

    async def pace(self, pool: str, bucket: str, *, gap_ms: int, one_at_a_time: bool = False, rest_ms: int = 0) -> None:
        """Say how fast a bucket of a pool may be called, by all its credentials together.

        With a gap, or where it is asked for, one call is out at a time, and the next permit is given `gap_ms` after
        that one ended. A bucket without memory counts from now. With `rest_ms` no call is made for at least so long.
        Where few of the pool's credentials are left that need not rest, the gap grows by itself.
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
        """Let jobs wait for their permits; return how many were new. A job that is inside already is left alone."""
        entered = 0
        for some in _batches(jobs):
            new, dispatched = await scripts.enqueue(
                self._valkey, new_jobs=some, now_ms=self._clock.pinned_ms, **self._keys
            )
            entered += new
            self._permits.inc(dispatched)
        return entered

    async def settle(self, results: Sequence[Settlement], *, follow_ups: Sequence[Job] = ()) -> Settled:
        """End permits: acknowledge their messages, book what the upstream said, offer what follows, open the gates."""
        # What does not fit into one call is enqueued first: after the last acknowledgement recovery would not find it.
        totals = [0, 0, await self.enqueue(follow_ups[_MOST_PER_CALL:]), 0]
        offers = follow_ups[:_MOST_PER_CALL]
        for some in list(_batches(results)) or [results]:
            reply = await scripts.settle(
                self._valkey,
                group=self._group,
                results=some,
                follow_ups=offers,
                now_ms=self._clock.pinned_ms,
                **self._keys,
            )
            offers, totals = [], [total + more for total, more in zip(totals, reply, strict=True)]
        settled = Settled(*totals)
        self._permits.inc(settled.dispatched)
        return settled

    async def report(self, refused: Settlement) -> Report:
        """Book at once that the upstream refused a call, before its result is committed: until then every other process
        would go on. The settlement that follows must say `is_reported`.
        """
        rests_ms, *learned = await scripts.report_refusal(
            self._valkey, results=[refused], now_ms=self._clock.pinned_ms, **self._keys
        )
        return Report(rests_ms, None if learned == [-1] else LearnedLimits(**dict(zip(_LEARNED, learned, strict=True))))

    async def confirm(self, admitted: Sequence[Admitted]) -> list[int | None]:
        """Ask whether the requests of these permits may be sent now: None where they may, else for how many ms the
        credential rests there at the least, 0 where it is another reason.

        A permit that is too old is exchanged for a new one, where there is one.
        """
        replies: list[list[int]] = []
        for some in _batches(admitted):
            asked = [(one.credential, one.bucket, one.message, one.by) for one in some]
            replies += await scripts.confirm_permits(
                self._valkey, asked=asked, now_ms=self._clock.pinned_ms, **self._keys
            )
        return [None if reply == [1] else reply[1] for reply in replies]

    async def open(self, pool: str) -> int:
        """Look at a pool again, as every step does by itself; return how many jobs were dispatched."""
        require_name("pool", pool)
        dispatched = await scripts.dispatch(self._valkey, pool=pool, now_ms=self._clock.pinned_ms, **self._keys)
        self._permits.inc(dispatched)
        return dispatched

    async def forget(self, jobs: Sequence[str]) -> int:
        """Take jobs back that still wait; return how many did. Those that are out are left to their workers."""
        forgotten = 0
        for some in _batches(jobs):
            gone, _ = await scripts.remove_jobs(self._valkey, names=some, now_ms=self._clock.pinned_ms, **self._keys)
            forgotten += gone
        return forgotten

    async def fire(self) -> int | None:
        """Do everything that is due; return in how many ms the next thing is, None if nothing is planned."""
        while True:
            _, dispatched, due_in_ms = await scripts.fire_due(
                self._valkey, most=_MOST_PER_CALL // 2, now_ms=self._clock.pinned_ms, **self._keys
            )
            self._permits.inc(dispatched)
            if due_in_ms != 0:
                return due_in_ms if due_in_ms > 0 else None

    async def status(self, pool: str) -> PoolStatus:
        """The pool's credentials, their allowances, and what waits."""
        require_name("pool", pool)
        return read_status(await scripts.status(self._valkey, pool=pool, now_ms=self._clock.pinned_ms, **self._keys))

    async def lengths(self) -> tuple[int, int]:
        """How many jobs wait for a permit, and how much is planned for later: what costs next to nothing."""
        waiting = await self._valkey.execute("ZCARD", self._keys["waiting"])
        return waiting, await self._valkey.execute("ZCARD", self._keys["due"])

    async def census(self) -> ShardStatus:
        """The whole shard in a few figures, which become its metrics; counted in pages, not to hold the server."""
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
        """Whether the server knows nothing of us, at first or because it lost its data."""
        return not await self._valkey.execute("EXISTS", epoch_key(self._unit))

    async def remind(self, memory: PoolRecord) -> None:
        """Tell what the gate may have forgotten of a pool, before its credentials are enrolled anew.

        It makes the gate more careful, or changes nothing.
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
        """Make the gate agree with SQL: free permits without a message, then offer everything that is unfinished.

        Always correct, at any moment: what is inside is left as it is. Return how many jobs had been missing.
        """
        freed = await self._free_lost_permits()
        missing = 0
        async for jobs in unfinished:
            missing += await self.enqueue(jobs)
        await self._valkey.execute("SET", epoch_key(self._unit), new_id())
        log.info("gate.rebuilt", gate=self._unit.name, jobs_missing=missing, permits_freed=freed)
        return missing

    async def _free_lost_permits(self) -> int:
        """Permits are listed before messages: one without a message was lost, or was settled since."""
        listed = [permit.decode() async for permit in self._pages("HSCAN", self._keys["permits"]) if permit != b"#"]
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
