"""The read path: answers at once from cache or database, and requests a refresh if the snapshot is too old.

A reader never calls the upstream and never waits for a publish. A caller that wants to wait for the refresh uses
`wait`, which blocks until the refresh is announced. While it is uncertain whether the Valkey server is available, a
refresh may still be queued: waiting callers keep waiting and are woken when the server is available again.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto

import msgspec

from tidegate.core.arguments import require_name, require_not_negative
from tidegate.core.clock import Clock, milliseconds, to_ms
from tidegate.core.errors import NotFound, TidegateError, Unavailable
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import occurs
from tidegate.storage.sql import Database
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.cache import CachedSnapshot, CacheKey, RefreshFeed
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.lookup import SnapshotLookup
from tidegate.systems.snapshots.model import SnapshotKind, SnapshotSubject
from tidegate.systems.snapshots.requests import BackgroundRequests, RefreshRequest
from tidegate.systems.snapshots.valkey_guard import ServerState

log = get_logger(__name__)

_GATHER = timedelta(seconds=30)
_MOST = 10_000


class ReadActivity:
    """Records when subjects were last read, in batches. Prefetch derives the tiers from it.

    A crash loses at most half a minute of it, which affects only priorities.
    """

    def __init__(self, database: Database, clock: Clock, *, gather: timedelta = _GATHER) -> None:
        self._database, self._clock, self._gather_s = database, clock, gather.total_seconds()
        self._read_at: dict[CacheKey, datetime] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._outage = Outage("snapshots.activity")

    def record(self, place: CacheKey) -> None:
        """Record a read of a subject."""
        self._read_at[place] = self._clock.now()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="record reads")
        elif len(self._read_at) >= _MOST:
            # The bound matters only while the database is slow: the oldest record is given up.
            self._read_at.pop(next(iter(self._read_at)))

    async def close(self) -> None:
        """Write the reads recorded so far."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        """Record the collected reads in SQL, batch by batch, until none are left."""
        try:
            while self._read_at:
                await occurs(self._closing, within_s=self._gather_s)
                # Reads that come during the transaction are collected in the new dict, and written in the next round.
                asked, self._read_at = self._read_at, {}
                await self._database.transaction(
                    store.record_reads, {SnapshotSubject(kind, key): at for (kind, key), at in asked.items()}
                )
        except Unavailable as error:
            self._outage.note(error)
        except TidegateError as error:
            log.warning("snapshots.activity_lost", error=str(error))
        else:
            self._outage.over()
        finally:
            # Without a background task, the next read starts one. A process without readers has no timer.
            self._writing = None


_EXPECTED_FOR = timedelta(seconds=30)
"""By then the requested refresh has ended, or its lock has expired."""


class Freshness(StrEnum):
    """How current a snapshot is."""

    FRESH = "FRESH"
    """Checked within its time to live."""
    STALE = "STALE"
    """Older; a refresh is queued if possible."""
    UPDATING = "UPDATING"
    """No snapshot yet; a refresh is queued or running."""
    NOT_FOUND = "NOT_FOUND"
    """The upstream has no such subject; or there is no snapshot and no refresh could be queued."""


class Queued(Enum):
    """Whether a refresh is queued or running."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()
    """The Valkey server was unavailable a moment ago, and may be available soon."""


class SnapshotAnswer(msgspec.Struct, frozen=True):
    """The answer to a reader."""

    kept: CachedSnapshot
    freshness: Freshness
    queued: Queued
    estimated_wait_ms: int | None
    """None: nothing is queued, or the wait is unknown."""

    @property
    def body(self) -> bytes | None:
        """The snapshot as JSON; None: no snapshot."""
        return self.kept.body

    @property
    def update_queued(self) -> bool:
        """Whether a refresh is known to be queued."""
        return self.queued is Queued.YES

    @property
    def is_settled(self) -> bool:
        """Whether no refresh can be waited for."""
        return self.queued is Queued.NO

    def encode(self) -> bytes:
        """Encode as JSON; the snapshot is inserted as stored."""
        return self.kept.head + self.tail

    @property
    def tail(self) -> bytes:
        """The end of the JSON answer, which depends on the time of the read; it follows `kept.head`."""
        if self.freshness is Freshness.FRESH:
            return _FRESH_TAIL
        wait = b"null" if self.estimated_wait_ms is None else b"%d" % self.estimated_wait_ms
        return _TAILS[self.freshness, self.update_queued] + wait + b"}"

    @property
    def tag(self) -> str:
        """The ETag: changes with the snapshot, its freshness and a failure, but not with the time of a check."""
        failed = "" if self.kept.failed is None else "-failed"
        return f'W/"{self.kept.hash or "none"}-{self.freshness}{failed}"'

    def is_news_after(self, shown: "SnapshotAnswer | None") -> bool:
        """Return whether a listener that was last shown `shown` has to be sent this answer: never an older one."""
        if shown is None or self.kept.version != shown.kept.version:
            # A slow lookup may bring an older answer after a newer one was shown.
            return shown is None or self.kept.version > shown.kept.version
        return (self.freshness, self.kept.failed) != (shown.freshness, shown.kept.failed)


_TAILS = {
    (freshness, queued): b',"freshness":"%b","updateQueued":%b,"estimatedWaitMs":'
    % (freshness.encode(), b"true" if queued else b"false")
    for freshness in Freshness
    for queued in (True, False)
}
_FRESH_TAIL = _TAILS[Freshness.FRESH, False] + b"null}"


class SnapshotReader:
    """Answers the readers of this process."""

    def __init__(
        self,
        kinds: Mapping[str, SnapshotKind],
        lookup: SnapshotLookup,
        requests: BackgroundRequests,
        feed: RefreshFeed,
        *,
        activity: ReadActivity,
        clock: Clock,
        missing_for: timedelta,
        failed_for: timedelta,
    ) -> None:
        self._kinds, self._lookup, self._requests, self._feed = kinds, lookup, requests, feed
        self._activity, self._clock = activity, clock
        self._ttl_ms = {name: milliseconds(kind.ttl) for name, kind in kinds.items()}
        self._missing_for_ms, self._failed_for = milliseconds(missing_for), failed_for
        requests.on_retry = feed.wake
        self._expected: dict[CacheKey, datetime] = {}

    @property
    def kinds(self) -> Collection[str]:
        """Names of all kinds."""
        return self._kinds.keys()

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Follow announced refreshes for the length of a block, so that outdated snapshots leave the memory."""
        async with self._feed.follow(self._on_refreshed):
            try:
                yield
            finally:
                await self._activity.close()
                await self._requests.close()
                await self._lookup.close()

    def server_returned(self) -> None:
        """Wake all waiting readers, because the Valkey server is available again."""
        self._requests.forget_failures()
        self._feed.wake()

    async def read(self, kind: str, key: str) -> SnapshotAnswer:
        """Return the current answer, and request a refresh in the background if it is needed.

        Raises `NotFound` for an unknown kind, `InvalidArgument` for an invalid key, and `Unavailable` if neither the
        Valkey server nor the database answers.
        """
        held = self.held(kind, key)
        if held is not None:
            return held
        kept = await self.known(kind, key)
        self._activity.record((kind, key))
        return self._judge((kind, key), kept)

    async def known(self, kind: str, key: str) -> CachedSnapshot:
        """Return the stored state of a subject; requests no refresh. Raises as `read`."""
        kept = self._lookup.held((kind, key))
        return await self._lookup.find(self.subject(kind, key)) if kept is None else kept

    def held(self, kind: str, key: str) -> SnapshotAnswer | None:
        """Answer as `read` from the memory of this process, without I/O; None if the snapshot is not there."""
        place = (kind, key)
        kept = self._lookup.held(place)
        if kept is None:
            return None
        self._activity.record(place)
        return self._judge(place, kept)

    async def wait(self, kind: str, key: str, within_s: float) -> SnapshotAnswer:
        """Answer as `read`; while a refresh is queued, wait for it, but at most `within_s` seconds."""
        require_not_negative("within_s", within_s)
        answer = await self.read(kind, key)
        if answer.is_settled or not within_s:
            return answer
        deadline = asyncio.get_running_loop().time() + within_s
        # Watch first, then read again: a refresh that is announced between the two reads is not missed.
        async with self._feed.watch([f"{kind}/{key}"]) as watch:
            while True:
                answer = await self.read(kind, key)
                left_s = deadline - asyncio.get_running_loop().time()
                if answer.is_settled or left_s <= 0:
                    return answer
                await watch.wait(left_s)

    @contextmanager
    def expecting(self, subject: SnapshotSubject) -> Generator[None]:
        """While a refresh is requested explicitly: let readers wait for it although an earlier one failed.

        Lasts for 30 s, unless the block raises.
        """
        place, now = (subject.kind, subject.key), self._clock.now()
        # Expired entries are removed here, so the dict stays as small as the number of recent requests.
        self._expected = {each: at for each, at in self._expected.items() if now - at < _EXPECTED_FOR} | {place: now}
        try:
            yield
        except BaseException:
            self._expected.pop(place, None)
            raise

    def subject(self, kind: str, key: str) -> SnapshotSubject:
        """Return the subject; raises `NotFound` for an unknown kind and `InvalidArgument` for an invalid key."""
        if kind not in self._kinds:
            raise NotFound("kind of snapshots", kind[:80], known=self._kinds)
        subject = SnapshotSubject(kind, key)
        require_name("key", key)
        self._kinds[kind].request(key, None)  # raises for keys that the upstream cannot have
        return subject

    def _judge(self, place: CacheKey, kept: CachedSnapshot) -> SnapshotAnswer:
        """Return the answer for a cached snapshot, and request a refresh if it is needed."""
        age_ms = None if kept.checked_ms is None else to_ms(self._clock.now()) - kept.checked_ms
        # 1. The upstream has no such subject. It is asked again only after `missing_for`.
        if kept.missing_ms is not None:
            is_known = age_ms is not None and age_ms < self._missing_for_ms
            queued = Queued.NO if is_known else self._request_refresh(place, kept, Reason.STALE)
            return self._answer(kept, Freshness.NOT_FOUND, queued)
        # 2. There is no snapshot yet.
        if not kept.body_size:
            queued = self._request_refresh(place, kept, Reason.CACHE_MISS)
            freshness = Freshness.UPDATING if queued is Queued.YES else Freshness.NOT_FOUND
            return self._answer(kept, freshness, queued)
        # 3. The snapshot is fresh.
        if age_ms is not None and age_ms < self._ttl_ms[place[0]]:
            return SnapshotAnswer(kept, Freshness.FRESH, Queued.NO, None)
        # 4. It is too old. The reader gets it at once, and a refresh is requested.
        return self._answer(kept, Freshness.STALE, self._request_refresh(place, kept, Reason.STALE))

    def _answer(self, kept: CachedSnapshot, freshness: Freshness, queued: Queued) -> SnapshotAnswer:
        return SnapshotAnswer(kept, freshness, queued, self._requests.estimate_ms() if queued is Queued.YES else None)

    def _request_refresh(self, place: CacheKey, kept: CachedSnapshot, reason: Reason) -> Queued:
        """Request a refresh, unless the Valkey server is unavailable or the last refresh failed a moment ago."""
        if kept.failed is not None and self._failed_recently(place, kept.failed.failed_at):
            return Queued.NO
        if self._lookup.server is ServerState.UNAVAILABLE:
            return Queued.NO
        # Without the feed no announcement arrives, and the server may be back in a moment: a
        # waiting reader goes on waiting.
        if self._feed.is_cut_off or self._lookup.server is ServerState.UNCERTAIN:
            return Queued.UNKNOWN
        is_queued = self._requests.request(
            RefreshRequest(
                subject=SnapshotSubject(*place),
                priority=Priority.HIGH,
                reason=reason,
                known_version=kept.version,
                upstream_id=kept.upstream_id,
            )
        )
        return Queued.YES if is_queued else Queued.UNKNOWN

    def _failed_recently(self, place: CacheKey, failed_at: datetime) -> bool:
        """Return whether a refresh failed a moment ago and was not requested explicitly since."""
        now, asked_at = self._clock.now(), self._expected.get(place)
        # Requested explicitly after that failure, and recently: the failure says nothing about the new refresh.
        is_expected = asked_at is not None and failed_at < asked_at and now - asked_at < _EXPECTED_FOR
        return now - failed_at < self._failed_for and not is_expected

    def _on_refreshed(self, moved: Collection[str] | None) -> None:
        # The cache first: a reader that is allowed to request again must not find the old snapshot.
        self._lookup.discard(moved)
        self._requests.on_refreshed(moved)
