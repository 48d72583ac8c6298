"""A snapshot ready to be sent: the body stays encoded as JSON, together with its times and its last failure."""

import re
from datetime import UTC, datetime

import msgspec

from tidegate.core.clock import to_ms
from tidegate.systems.snapshots.model import unpack
from tidegate.systems.snapshots.store import RefreshStatus, SnapshotRow

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
