"""Caches of snapshots: in the memory of a process and on the Valkey server; and the feed that invalidates them.

A cached snapshot is ready to be sent: the body stays encoded as JSON, together with its times and its last failure.

A copy on the server can be lost at any time. Its version never decreases, so a slow reader does not replace what a
worker has just written by an old row. If a worker's result is not copied, its version is kept as a mark for
`MARKED_FOR_S`; a copy that was read or written longer ago than half of that is not stored where there is no entry.

The memory of a process keeps the most recently read snapshots, up to a number of bytes and for a short time. An entry
that is read late in its time is looked up again in the background, so that popular snapshots stay in memory. Each entry
has a random time for that, so that entries stored together are not looked up together.
"""

import random
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal
from zlib import crc32

import msgspec

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.clock import milliseconds, monotonic_ms, to_ms
from tidegate.core.errors import UNDECODABLE
from tidegate.runtime.change_feed import ChangeFeed
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script
from tidegate.storage.valkey.scripts import ScriptCall, run_together
from tidegate.systems.snapshots.model import SnapshotSubject, unpack
from tidegate.systems.snapshots.store import Refreshed, RefreshStatus, SnapshotRow, WriteEffect

_BEGIN = b'{"snapshot":'
_NULL = b"null"
_OVERHEAD = 300
"""Estimated memory of an entry besides its bytes."""

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)


class RefreshFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last refresh failed permanently, and is not retried until another refresh is requested."""

    reason: str
    message: str
    failed_at: datetime

    @classmethod
    def of(cls, status: RefreshStatus | None) -> "RefreshFailure | None":
        """Build from the stored status; None if the last refresh did not fail, or is being retried."""
        if status is None or not status.has_failed:
            return None
        return cls.shown(status.reason, status.message, status.changed_at)

    @classmethod
    def shown(cls, reason: str, message: str, failed_at: datetime) -> "RefreshFailure":
        """Build the form that readers see, without addresses that the upstream's message may contain."""
        return cls(reason=reason, message=_URL.sub("(address)", message), failed_at=failed_at)


class CachedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a subject at one moment."""

    version: int
    hash: str | None
    upstream_id: str | None
    updated_ms: int | None
    checked_ms: int | None
    missing_ms: int | None
    head: bytes
    """Begin of the JSON answer: snapshot (or null), times, failure. The other fields depend on the time of the read."""
    body_size: int
    """0: no snapshot."""
    failed: RefreshFailure | None = None

    @property
    def body(self) -> bytes | None:
        """The snapshot as JSON; None: no snapshot."""
        return self.head[len(_BEGIN) : len(_BEGIN) + self.body_size] if self.body_size else None

    @property
    def size(self) -> int:
        """Estimated memory in bytes."""
        return len(self.head) + _OVERHEAD

    @classmethod
    def of(
        cls,
        *,
        version: int,
        hash_: str | None,
        upstream_id: str | None,
        updated_ms: int | None,
        checked_ms: int | None,
        missing_ms: int | None,
        packed: bytes | None,
        failed: RefreshFailure | None = None,
    ) -> "CachedSnapshot":
        """Build from stored values. A subject that the upstream no longer has is shown without its stored body."""
        # Decompress and encode once, when the entry is stored: a read only appends the tail that depends on its time.
        body = b"" if packed is None or missing_ms is not None else unpack(packed)
        times = b',"lastUpdatedAt":%b,"lastCheckedAt":%b' % (_moment(updated_ms), _moment(checked_ms))
        failure = b',"failure":' + (_NULL if failed is None else msgspec.json.encode(failed))
        return cls(
            version=version,
            hash=hash_,
            upstream_id=upstream_id,
            updated_ms=updated_ms,
            checked_ms=checked_ms,
            missing_ms=missing_ms,
            head=_BEGIN + (body or _NULL) + times + failure,
            body_size=len(body),
            failed=failed,
        )

    @classmethod
    def unknown(cls, failed: RefreshFailure | None = None) -> "CachedSnapshot":
        """Build the state of a subject that was never refreshed."""
        return cls.of(
            version=0,
            hash_=None,
            upstream_id=None,
            updated_ms=None,
            checked_ms=None,
            missing_ms=None,
            packed=None,
            failed=failed,
        )

    @classmethod
    def of_row(cls, row: SnapshotRow, failed: RefreshFailure | None = None) -> "CachedSnapshot":
        """Build from a row of the database."""
        return cls.of(
            version=row.version,
            hash_=row.hash,
            upstream_id=row.upstream_id,
            updated_ms=_ms(row.last_updated_at),
            checked_ms=_ms(row.last_checked_at),
            missing_ms=_ms(row.missing_since),
            packed=row.body,
            failed=failed,
        )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def _moment(ms: int | None) -> bytes:
    if ms is None:
        return _NULL
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return b'"%b"' % text.replace("+00:00", "Z").encode()


UNKNOWN = CachedSnapshot.unknown()
"""A subject without row and failure."""


MARKED_FOR_S = 30.0
"""How long a version is kept as a mark where there is no copy."""
_UNITS = 1024
"""Number of units over which subjects, and so the load of a cluster, are spread."""
Mode = Literal["whole", "checked", "missing"]


@lua_script("put.lua")
async def _put(
    valkey: Valkey,
    *,
    entry: Key,
    version: int,
    facts: dict[str, str],
    body: bytes,
    mode: str,
    keep_ms: int,
    mark_ms: int,
    only_known: int,
) -> int: ...


@lua_script("fail.lua")
async def _fail(valkey: Valkey, *, entry: Key, version: int, failure: bytes) -> int: ...


class WrittenResult(msgspec.Struct, frozen=True):
    """A result, and the effect of writing it to the database."""

    result: Refreshed
    effect: WriteEffect


class SnapshotCache:
    """Copies of snapshots on the Valkey server, shared by all processes."""

    def __init__(self, valkey: Valkey, *, keep: timedelta) -> None:
        self._valkey, self._keep_ms = valkey, milliseconds(keep)

    def place(self, subject: SnapshotSubject) -> Key:
        """Return the key of a subject's entry."""
        unit = self._valkey.unit(f"snapshots:{crc32(subject.id.encode()) % _UNITS}")
        # Keys of one unit share a hash slot of a cluster. Many units spread the subjects over its shards.
        return unit.key(f"kept:{subject.id}")

    async def get(self, subject: SnapshotSubject) -> CachedSnapshot | None:
        """Return the copy of a subject; None if there is none."""
        return (await self.get_many([subject])).get(subject)

    async def get_many(self, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, CachedSnapshot]:
        """Return the copies that exist, in one round trip."""
        replies = await self._valkey.pipeline([("HGETALL", self.place(each)) for each in subjects])
        found: dict[SnapshotSubject, CachedSnapshot] = {}
        for subject, reply in zip(subjects, replies, strict=True):
            if isinstance(reply, Exception):
                raise reply
            if b"checked_ms" in reply:  # otherwise there is no entry, or only a mark
                with suppress(ValueError, KeyError, *UNDECODABLE):  # a damaged copy is ignored
                    found[subject] = _kept(reply)
        return found

    async def put_row(self, row: SnapshotRow, failed: RefreshFailure | None = None) -> None:
        """Store a row that a reader found in SQL."""
        await self.put_rows([(row, failed)])

    async def put_rows(self, rows: Sequence[tuple[SnapshotRow, RefreshFailure | None]]) -> None:
        """Store rows, each with its failure, in one round trip."""
        await run_together(self._valkey, [self._row(row, failed) for row, failed in rows])

    def _row(self, row: SnapshotRow, failed: RefreshFailure | None) -> ScriptCall:
        facts = {
            "hash": row.hash or "",
            "updated_ms": "" if row.last_updated_at is None else str(to_ms(row.last_updated_at)),
            "checked_ms": "" if row.last_checked_at is None else str(to_ms(row.last_checked_at)),
            "missing_ms": "" if row.missing_since is None else str(to_ms(row.missing_since)),
            "upstream_id": row.upstream_id or "",
        }
        if failed is not None:
            facts["failure"] = msgspec.json.encode(failed).decode()
        # A subject that the upstream no longer has keeps its last body in SQL, but readers must not get it.
        has_body = row.body is not None and row.missing_since is None
        mode: Mode = "whole" if has_body else "missing"
        return self._call(row.subject, row.version, facts, row.body or b"", mode)

    async def put_written(self, written: Sequence[WrittenResult], *, only_known: bool) -> None:
        """Store results of refreshes; with `only_known`, only of subjects that already have a copy."""
        calls = [self._written(each, only_known=only_known) for each in written if each.effect.is_taken]
        if calls:
            await run_together(self._valkey, calls)

    async def put_failed(self, failures: Sequence[tuple[SnapshotSubject, int, RefreshFailure]]) -> None:
        """Add failed refreshes, each with its version, to the copies of their subjects."""
        calls = [
            _fail.bind(entry=self.place(subject), version=version, failure=msgspec.json.encode(failed))
            for subject, version, failed in failures
        ]
        if calls:
            await run_together(self._valkey, calls)

    async def forget(self, subjects: Sequence[SnapshotSubject]) -> None:
        """Delete copies, since SQL has newer rows. Raises `ServerRefused` if the server accepts no writes."""
        for reply in await self._valkey.pipeline([("UNLINK", self.place(each)) for each in subjects]):
            if isinstance(reply, Exception):
                raise reply

    def _written(self, each: WrittenResult, *, only_known: bool) -> ScriptCall:
        result, checked = each.result, str(to_ms(each.result.checked_at))
        if result.body is None:
            facts, mode = {"missing_ms": checked, "checked_ms": checked}, "missing"
        # A changed body is sent in full; otherwise only its times are updated, which saves the transfer of the body.
        elif each.effect.is_changed:
            facts = {"hash": result.hash or "", "updated_ms": checked, "checked_ms": checked, "missing_ms": ""}
            facts["upstream_id"], mode = result.upstream_id or "", "whole"
        else:
            facts, mode = {"hash": result.hash or "", "checked_ms": checked, "missing_ms": ""}, "checked"
        # Mode `checked`: the script keeps the body that the copy has, if its hash matches.
        body = result.body or b"" if mode == "whole" else b""
        return self._call(result.subject, result.version, facts, body, mode, only_known=only_known)

    def _call(
        self,
        subject: SnapshotSubject,
        version: int,
        facts: dict[str, str],
        body: bytes,
        mode: Mode | str,
        *,
        only_known: bool = False,
    ) -> ScriptCall:
        """Build the script call that writes one cached snapshot."""
        return _put.bind(
            entry=self.place(subject),
            version=version,
            facts=facts,
            body=body,
            mode=mode,
            keep_ms=self._keep_ms,
            mark_ms=int(MARKED_FOR_S * 1000),
            only_known=int(only_known),
        )


def _kept(entry: Mapping[bytes, bytes]) -> CachedSnapshot:
    failure = entry.get(b"failure")
    return CachedSnapshot.of(
        version=int(entry[b"version"]),
        hash_=_text(entry.get(b"hash")),
        upstream_id=_text(entry.get(b"upstream_id")),
        updated_ms=_number(entry.get(b"updated_ms")),
        checked_ms=_number(entry.get(b"checked_ms")),
        missing_ms=_number(entry.get(b"missing_ms")),
        packed=entry.get(b"body"),
        failed=msgspec.json.decode(failure, type=RefreshFailure) if failure else None,
    )


def _text(raw: bytes | None) -> str | None:
    return raw.decode() if raw else None


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw else None


CacheKey = tuple[str, str]
"""Kind and key of a subject."""

_RENEWED_FROM, _RENEWED_SPREAD = 0.4, 0.4
"""Share of an entry's lifetime after which a read triggers another lookup: start and width of the random range."""


class _LocalEntry:
    __slots__ = ("kept", "renew_at_ms", "until_ms")

    def __init__(self, kept: CachedSnapshot, now_ms: float, keep_ms: float) -> None:
        drawn = random.random()  # noqa: S311 - spreads load, guards nothing
        self.kept, self.until_ms = kept, now_ms + keep_ms
        self.renew_at_ms = now_ms + (_RENEWED_FROM + _RENEWED_SPREAD * drawn) * keep_ms


class LocalCache:
    """Snapshots in the memory of this process; the least recently read is evicted first."""

    def __init__(self, *, most_bytes: int, keep_ms: float, now_ms: Callable[[], float] = monotonic_ms) -> None:
        require_not_negative("most_bytes", most_bytes)
        require_positive("keep_ms", keep_ms)
        self._most, self._keep_ms, self._now_ms = most_bytes, keep_ms, now_ms
        self._entries: OrderedDict[CacheKey, _LocalEntry] = OrderedDict()
        self.bytes = 0
        """Total size of all entries."""
        self.on_due: Callable[[CacheKey], None] = _ignore_due
        """Called once for an entry that is read late in its lifetime."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, place: CacheKey) -> CachedSnapshot | None:
        """Return an entry; None if there is none or it expired."""
        entry = self._entries.get(place)
        if entry is None:
            return None
        now_ms = self._now_ms()
        if now_ms >= entry.renew_at_ms:
            if now_ms >= entry.until_ms:
                self.forget(place)
                return None
            # At most one lookup per entry: later reads of the same entry must not start another one.
            entry.renew_at_ms = entry.until_ms
            self.on_due(place)
        self._entries.move_to_end(place)
        return entry.kept

    def peek(self, place: CacheKey) -> CachedSnapshot | None:
        """Return an entry without counting this as a read."""
        entry = self._entries.get(place)
        return None if entry is None or self._now_ms() >= entry.until_ms else entry.kept

    def put(self, place: CacheKey, kept: CachedSnapshot, *, keep_ms: float | None = None) -> None:
        """Store an entry, unless it is larger than the whole cache."""
        self.forget(place)
        if kept.size > self._most:
            return
        self._entries[place] = _LocalEntry(kept, self._now_ms(), self._keep_ms if keep_ms is None else keep_ms)
        self.bytes += kept.size
        while self.bytes > self._most:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= oldest.kept.size

    def forget(self, place: CacheKey) -> None:
        """Remove one entry, if it exists."""
        entry = self._entries.pop(place, None)
        if entry is not None:
            self.bytes -= entry.kept.size

    def clear(self) -> None:
        """Remove all entries at once."""
        self._entries.clear()
        self.bytes = 0


def _ignore_due(_: CacheKey) -> None:
    """Ignore an entry that is due for a lookup."""


_FEED_GAP = timedelta(milliseconds=2)
"""Subjects published one by one within this time are sent together. Readers wait for them, so it is short."""


class RefreshFeed(ChangeFeed[str]):
    """Announces the ids of refreshed subjects to all processes; see `tidegate.runtime.change_feed`."""

    def __init__(self, valkey: Valkey, unit: Unit) -> None:
        super().__init__(valkey, unit.key("refreshed"), str, field=b"subjects", gap=_FEED_GAP)
