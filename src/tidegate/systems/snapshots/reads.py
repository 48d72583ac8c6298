"""The read path: answers from what is known, at once, and has a refresh asked for where that is too old.

Readers never call the upstream and never wait for a publish. Whoever wants to wait for the refresh does so by `wait`,
which blocks until news of it comes. While it is in doubt whether the Valkey server is there, a refresh may still be
queued: who waits goes on waiting, and is woken when the server is back.

Notes which subjects are read, in batches: prefetching goes by it.
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
from tidegate.systems.snapshots.cache import CacheKey, RefreshFeed
from tidegate.systems.snapshots.cached_snapshot import CachedSnapshot
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.lookup import SnapshotLookup
from tidegate.systems.snapshots.model import SnapshotKind, SnapshotSubject
from tidegate.systems.snapshots.requests import BackgroundRequests, RefreshRequest
from tidegate.systems.snapshots.valkey_guard import ServerState

log = get_logger(__name__)

_GATHER = timedelta(seconds=30)
_MOST = 10_000


class ReadActivity:
    """When subjects were last asked for. Half a minute of it may be lost; nothing depends on it but priorities."""

    def __init__(self, database: Database, clock: Clock, *, gather: timedelta = _GATHER) -> None:
        self._database, self._clock, self._gather_s = database, clock, gather.total_seconds()
        self._asked: dict[CacheKey, datetime] = {}
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._outage = Outage("snapshots.activity")

    def note(self, place: CacheKey) -> None:
        """It was asked for now."""
        self._asked[place] = self._clock.now()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="note what is read")
        elif len(self._asked) >= _MOST:
            self._asked.pop(next(iter(self._asked)))

    async def close(self) -> None:
        """Write what is left."""
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            while self._asked:
                await occurs(self._closing, within_s=self._gather_s)
                asked, self._asked = self._asked, {}
                await self._database.transaction(
                    store.touch_asked, {SnapshotSubject(kind, key): at for (kind, key), at in asked.items()}
                )
        except Unavailable as error:
            self._outage.note(error)
        except TidegateError as error:
            log.warning("snapshots.activity_lost", error=str(error))
        else:
            self._outage.over()
        finally:
            self._writing = None


_EXPECTED_FOR = timedelta(seconds=30)
"""By then it has ended, or its lock has."""


class Freshness(StrEnum):
    """How good a snapshot is."""

    FRESH = "FRESH"
    """Checked within its time to live."""
    STALE = "STALE"
    """Older; a refresh is queued, if that was possible."""
    UPDATING = "UPDATING"
    """There is none yet; a refresh is queued or under way."""
    NOT_FOUND = "NOT_FOUND"
    """The upstream has no such subject; or nothing is known, and nothing could be queued."""


class Queued(Enum):
    """Whether a refresh is queued or under way."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()
    """The server could not be asked a moment ago, which may be over soon."""


class SnapshotAnswer(msgspec.Struct, frozen=True):
    """What a reader is told."""

    kept: CachedSnapshot
    freshness: Freshness
    queued: Queued
    estimated_wait_ms: int | None
    """None: nothing is queued, or nobody knows."""

    @property
    def body(self) -> bytes | None:
        """The snapshot, as JSON; None: there is none."""
        return self.kept.body

    @property
    def update_queued(self) -> bool:
        """Whether a refresh is queued, as far as is known."""
        return self.queued is Queued.YES

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.queued is Queued.NO

    def encode(self) -> bytes:
        """The contract, as JSON: the snapshot is put in as it is."""
        return self.kept.head + self.tail

    @property
    def tail(self) -> bytes:
        """The end of the same, which depends on the moment; it begins with `kept.head`, which many answers share."""
        if self.freshness is Freshness.FRESH:
            return _FRESH_TAIL
        wait = b"null" if self.estimated_wait_ms is None else b"%d" % self.estimated_wait_ms
        return _TAILS[self.freshness, self.update_queued] + wait + b"}"

    @property
    def tag(self) -> str:
        """For ETag: changes with the snapshot, its freshness and a failure, and not with the time of a check."""
        failed = "" if self.kept.failed is None else "-failed"
        return f'W/"{self.kept.hash or "none"}-{self.freshness}{failed}"'

    def is_news_after(self, shown: "SnapshotAnswer | None") -> bool:
        """Whether a listener is to be shown this after what it was `shown`: never something older."""
        if shown is None or self.kept.version != shown.kept.version:
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
    """Answers readers of this process."""

    def __init__(
        self,
        kinds: Mapping[str, SnapshotKind],
        lookup: SnapshotLookup,
        wanting: BackgroundRequests,
        news: RefreshFeed,
        *,
        activity: ReadActivity,
        clock: Clock,
        missing_for: timedelta,
        failed_for: timedelta,
    ) -> None:
        self._kinds, self._lookup, self._wanting, self._news = kinds, lookup, wanting, news
        self._activity, self._clock = activity, clock
        self._ttl_ms = {name: milliseconds(kind.ttl) for name, kind in kinds.items()}
        self._missing_for_ms, self._failed_for = milliseconds(missing_for), failed_for
        wanting.on_retry = news.wake
        self._expected: dict[CacheKey, datetime] = {}

    @property
    def kinds(self) -> Collection[str]:
        """The names of all kinds."""
        return self._kinds.keys()

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Hear of refreshes, for the length of a block: what is held in memory goes when it is outdated."""
        async with self._news.follow(self._hear):
            try:
                yield
            finally:
                await self._activity.close()
                await self._wanting.close()
                await self._lookup.close()

    def server_returned(self) -> None:
        """The Valkey server is back: who waits looks again, and may ask for refreshes."""
        self._wanting.forget_failures()
        self._news.wake()

    async def read(self, kind: str, key: str) -> SnapshotAnswer:
        """What is known now; raises `NotFound` for a kind, `InvalidArgument` for a key that cannot be, and
        `Unavailable` where neither server nor database can say."""
        held = self.held(kind, key)
        if held is not None:
            return held
        kept = await self.known(kind, key)
        self._activity.note((kind, key))
        return self._judged((kind, key), kept)

    async def known(self, kind: str, key: str) -> CachedSnapshot:
        """What is known, without judging it: nothing is asked for."""
        kept = self._lookup.held((kind, key))
        return await self._lookup.find(self.subject(kind, key)) if kept is None else kept

    def held(self, kind: str, key: str) -> SnapshotAnswer | None:
        """The same, without waiting for anything; None where this process does not hold it."""
        place = (kind, key)
        kept = self._lookup.held(place)
        if kept is None:
            return None
        self._activity.note(place)
        return self._judged(place, kept)

    async def wait(self, kind: str, key: str, within_s: float) -> SnapshotAnswer:
        """The same; where a refresh is queued, as soon as it is done, or after `within_s` seconds as things stand."""
        require_not_negative("within_s", within_s)
        answer = await self.read(kind, key)
        if answer.is_settled or not within_s:
            return answer
        deadline = asyncio.get_running_loop().time() + within_s
        async with self._news.watch([f"{kind}/{key}"]) as watch:
            while True:
                answer = await self.read(kind, key)
                left_s = deadline - asyncio.get_running_loop().time()
                if answer.is_settled or left_s <= 0:
                    return answer
                await watch.news(left_s)

    @contextmanager
    def expecting(self, subject: SnapshotSubject) -> Generator[None]:
        """In here a refresh of it is asked for; who reads may wait for it then, though one before has failed."""
        place, now = (subject.kind, subject.key), self._clock.now()
        self._expected = {each: at for each, at in self._expected.items() if now - at < _EXPECTED_FOR} | {place: now}
        try:
            yield
        except BaseException:
            self._expected.pop(place, None)
            raise

    def subject(self, kind: str, key: str) -> SnapshotSubject:
        """The subject of this name, if there can be one."""
        if kind not in self._kinds:
            raise NotFound("kind of snapshots", kind[:80], known=self._kinds)
        subject = SnapshotSubject(kind, key)
        require_name("key", key)
        self._kinds[kind].request(key, None)  # which refuses what the upstream could never have
        return subject

    def _judged(self, place: CacheKey, kept: CachedSnapshot) -> SnapshotAnswer:
        age_ms = None if kept.checked_ms is None else to_ms(self._clock.now()) - kept.checked_ms
        if kept.missing_ms is not None:
            is_known = age_ms is not None and age_ms < self._missing_for_ms
            queued = Queued.NO if is_known else self._want(place, kept, Reason.STALE)
            return self._answer(kept, Freshness.NOT_FOUND, queued)
        if not kept.body_size:
            queued = self._want(place, kept, Reason.CACHE_MISS)
            freshness = Freshness.UPDATING if queued is Queued.YES else Freshness.NOT_FOUND
            return self._answer(kept, freshness, queued)
        if age_ms is not None and age_ms < self._ttl_ms[place[0]]:
            return SnapshotAnswer(kept, Freshness.FRESH, Queued.NO, None)
        return self._answer(kept, Freshness.STALE, self._want(place, kept, Reason.STALE))

    def _answer(self, kept: CachedSnapshot, freshness: Freshness, queued: Queued) -> SnapshotAnswer:
        return SnapshotAnswer(kept, freshness, queued, self._wanting.estimate_ms() if queued is Queued.YES else None)

    def _want(self, place: CacheKey, kept: CachedSnapshot, reason: Reason) -> Queued:
        """Without the server nothing is queued: updates stop, reads go on. What failed is left alone for a while."""
        if kept.failed is not None and self._is_left_alone(place, kept.failed.failed_at):
            return Queued.NO
        if self._lookup.server is ServerState.AWAY:
            return Queued.NO
        if self._news.is_cut_off or self._lookup.server is ServerState.DOUBTFUL:
            return Queued.UNKNOWN
        is_queued = self._wanting.want(
            RefreshRequest(
                subject=SnapshotSubject(*place),
                priority=Priority.HIGH,
                reason=reason,
                known_version=kept.version,
                upstream_id=kept.upstream_id,
            )
        )
        return Queued.YES if is_queued else Queued.UNKNOWN

    def _is_left_alone(self, place: CacheKey, failed_at: datetime) -> bool:
        """A failure of a moment ago, and nobody has asked for it again since."""
        now, asked_at = self._clock.now(), self._expected.get(place)
        is_expected = asked_at is not None and failed_at < asked_at and now - asked_at < _EXPECTED_FOR
        return now - failed_at < self._failed_for and not is_expected

    def _hear(self, moved: Collection[str] | None) -> None:
        self._lookup.hear(moved)
        self._wanting.hear(moved)
