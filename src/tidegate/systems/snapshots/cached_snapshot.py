"""What is known of a subject, ready to be answered with: the snapshot stays the bytes that it is."""

import re
from datetime import UTC, datetime

import msgspec

from tidegate.core.clock import to_ms
from tidegate.systems.snapshots.model import unpack
from tidegate.systems.snapshots.store import RefreshStatus, SnapshotRow

_BEGIN = b'{"snapshot":'
_NULL = b"null"
_ABOUT = 300
"""What an entry takes beside its bytes."""

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE)


class RefreshFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last refresh failed for good; nobody tries again before it is asked for again."""

    reason: str
    message: str
    failed_at: datetime

    @classmethod
    def of(cls, trouble: RefreshStatus | None) -> "RefreshFailure | None":
        """From the database; None where nothing failed, or it is still being tried."""
        if trouble is None or not trouble.has_failed:
            return None
        return cls.shown(trouble.reason, trouble.message, trouble.changed_at)

    @classmethod
    def shown(cls, reason: str, message: str, failed_at: datetime) -> "RefreshFailure":
        """As readers see it: without addresses, which an upstream's own words may contain."""
        return cls(reason=reason, message=_URL.sub("(address)", message), failed_at=failed_at)


class CachedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a subject at one moment."""

    version: int
    hash: str | None
    upstream_id: str | None
    updated_ms: int | None
    checked_ms: int | None
    missing_ms: int | None
    head: bytes
    """The answer up to its last fields, which depend on the moment: the snapshot (or null), and its times."""
    body_size: int
    """0: there is no snapshot."""
    failed: RefreshFailure | None = None

    @property
    def body(self) -> bytes | None:
        """The snapshot, as JSON."""
        return self.head[len(_BEGIN) : len(_BEGIN) + self.body_size] if self.body_size else None

    @property
    def size(self) -> int:
        """What it takes of memory, about."""
        return len(self.head) + _ABOUT

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
        """From what is stored. What the upstream no longer has is not shown, though the database still has it."""
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
        """Of what nobody has ever seen."""
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
        """From the database."""
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
"""Nobody has ever heard of it."""
