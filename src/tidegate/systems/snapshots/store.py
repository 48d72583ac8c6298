"""Reads and writes the rows of subjects; every function works in the transaction of the caller.

Invariant: the version of a row never decreases. Rows are locked in key order, and `versions` decides under the lock: a
result is not written if its request was sent before that of the row, whichever process brings it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Table, and_, bindparam, case, delete, false, or_, select, update

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import UtcDateTime
from tidegate.systems.snapshots import versions
from tidegate.systems.snapshots.model import SnapshotSubject, digest, pack
from tidegate.systems.snapshots.prefetch.policies import TIER_NUMBERS, Tier, learn
from tidegate.systems.snapshots.sampling import sample_place
from tidegate.systems.snapshots.tables import snapshot_history, snapshot_status, snapshots

_c = snapshots.c
LOOK_WITHIN = timedelta(hours=1)
"""After a read, the planner looks at a subject again within this time."""
RETRYING, FAILED = "RETRYING", "FAILED"
"""States in `snapshot_status`; a subject without a failed refresh has no row."""


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """The stored row of a subject."""

    subject: SnapshotSubject
    version: int
    upstream_id: str | None
    body: bytes | None
    """Compressed; None: the upstream never had the subject."""
    hash: str | None
    size: int
    last_updated_at: datetime | None
    last_checked_at: datetime | None
    missing_since: datetime | None
    last_asked_at: datetime | None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a successful request, ready to be written."""

    subject: SnapshotSubject
    version: int
    """See `versions.version_of_result`."""
    checked_at: datetime
    """When the request was sent, by the server's clock."""
    body: bytes | None
    """Compressed; None: the upstream has no such subject."""
    hash: str | None = None
    size: int = 0
    upstream_id: str | None = None

    @classmethod
    def of(
        cls,
        subject: SnapshotSubject,
        version: int,
        *,
        checked_at: datetime,
        body: bytes,
        upstream_id: str | None = None,
    ) -> "Refreshed":
        """Compress and hash an uncompressed body."""
        return cls(
            subject=subject,
            version=version,
            checked_at=checked_at,
            body=pack(body),
            hash=digest(body),
            size=len(body),
            upstream_id=upstream_id,
        )


class WriteEffect(msgspec.Struct, frozen=True):
    """What writing a result did."""

    subject: SnapshotSubject
    version: int
    is_taken: bool
    """False: the row already has a newer result."""
    is_changed: bool


def get_many(tx: Transaction, subjects: Iterable[SnapshotSubject]) -> dict[SnapshotSubject, SnapshotRow]:
    """Return the rows of the subjects that have one."""
    return {each.subject: each for each in map(_snapshot, tx.execute(_READ.where(_of_subjects(subjects))))}


class KnownSubject(msgspec.Struct, frozen=True):
    """The stored row and the status of a subject, where they exist."""

    row: SnapshotRow | None
    status: "RefreshStatus | None"


def read_many(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, KnownSubject]:
    """Return row and status of each subject."""
    rows = get_many(tx, subjects)
    those = select(_status.kind, _status.key, *_STATUS_COLUMNS).where(_of_subjects(subjects, snapshot_status))
    statuses = {SnapshotSubject(row[0], row[1]): _status_of(row[2:]) for row in tx.execute(those)}
    return {each: KnownSubject(rows.get(each), statuses.get(each)) for each in subjects}


def write_round(tx: Transaction, results: Sequence[Refreshed], keeps_history: bool = True) -> list[WriteEffect]:
    """Write the newest result of each subject; return the effect of every result, in the given order.

    With `keeps_history`, each changed body is also added to the history.
    """
    # 1. One result per subject: two events of it may have ended in the same batch.
    newest = versions.newest(results)
    # 2. Lock the rows, then compare versions. Compared before the lock, another worker could write in between.
    present = _lock_rows(tx, sorted(newest))
    taken = [newest[each] for each in sorted(newest) if versions.replaces(newest[each], present[each])]
    # A subject that the upstream no longer has keeps its last body.
    changed = {each.subject for each in taken if each.body is not None and present[each.subject].hash != each.hash}
    # 3. Write bodies only where they changed. For all others only the time of the check is updated.
    _write(tx, [each for each in taken if each.subject in changed], present)
    if keeps_history:
        _add_history(tx, [each for each in taken if each.subject in changed])
    _check(tx, [each for each in taken if each.subject not in changed], present)
    # 4. A success ends the recorded failure of its subject.
    _clear_status(tx, [each.subject for each in taken])
    # By identity: of two equal results of a subject, only one was written.
    counted = {id(each) for each in taken}
    return [
        WriteEffect(
            each.subject,
            each.version,
            is_taken=id(each) in counted,
            is_changed=id(each) in counted and each.subject in changed,
        )
        for each in results
    ]


def record_reads(
    tx: Transaction, asked: Mapping[SnapshotSubject, datetime], look_within: timedelta = LOOK_WITHIN
) -> None:
    """Record when subjects were last read; the time never decreases. The subjects become HOT.

    Prefetch examines them again within `look_within`, since they are read now.
    """
    rows = [
        {"of_kind": subject.kind, "of_key": subject.key, "asked_at": at, "due_before": at + look_within}
        for subject, at in sorted(asked.items(), key=lambda each: each[0])
    ]
    if rows:
        tx.execute(_RECORD_READ, rows)


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh that failed permanently, or that is being retried."""

    subject: SnapshotSubject
    state: str = FAILED
    version: int | None
    """Version of the failed request, or of its event if none was sent; None: unknown."""
    reason: str
    message: str
    tries: int


def record_failures(tx: Transaction, failures: Sequence[FailedAttempt]) -> list[FailedAttempt]:
    """Record failed refreshes; return those recorded. The others are older than the last success of their subject."""
    if not failures:
        return []
    # The row is locked although only the status is written. Otherwise a success could commit
    # between comparison and write.
    present = _lock_rows(tx, sorted({each.subject for each in failures}))
    counted = [
        each
        for each in failures
        if each.version is None or versions.is_failure_current(each.version, present[each.subject].version)
    ]
    for each in counted:
        _record_failure(tx, each)
    # These rows were only inserted to be locked. Prefetch would schedule a row without content.
    if unwritten := [subject for subject, row in present.items() if not row.version]:
        tx.execute(delete(snapshots).where(_of_subjects(unwritten)))
    return counted


def _record_failure(tx: Transaction, failure: FailedAttempt) -> None:
    key = {"kind": failure.subject.kind, "key": failure.subject.key}
    values = {
        "state": failure.state,
        "reason": failure.reason,
        "message": failure.message[:2000],
        "tries": failure.tries,
        "changed_at": tx.now,
    }
    at = snapshot_status.c
    # Update, then insert: works in all dialects. The row of the subject is locked, so no other
    # process inserts in between.
    moved = tx.execute(update(snapshot_status).where(at.kind == key["kind"], at.key == key["key"]).values(values))
    if moved.rowcount == 0:
        tx.insert_many(snapshot_status, [key | values], skip_existing=True)


class RefreshStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Why the refresh of a subject did not succeed: a row of `snapshot_status`."""

    state: str
    reason: str
    message: str
    tries: int
    changed_at: datetime

    @property
    def has_failed(self) -> bool:
        """Whether the refresh failed permanently and is not retried."""
        return self.state == FAILED


def status_of(tx: Transaction, subject: SnapshotSubject) -> RefreshStatus | None:
    """Return the status of the refreshes of a subject; None: the last one succeeded, or there was none."""
    row = tx.execute(_STATUS, {"of_kind": subject.kind, "of_key": subject.key}).one_or_none()
    return None if row is None else _status_of(row)


def _status_of(row: Sequence[Any]) -> RefreshStatus:
    return RefreshStatus(state=row[0], reason=row[1], message=row[2], tries=row[3], changed_at=row[4])


def failing_subjects(tx: Transaction, limit: int = 100) -> list[tuple[SnapshotSubject, str, str, int]]:
    """Return subjects in `snapshot_status`, the latest first: state, reason, attempts."""
    at = snapshot_status.c
    rows = tx.execute(
        select(at.kind, at.key, at.state, at.reason, at.tries).order_by(at.changed_at.desc()).limit(limit)
    )
    return [(SnapshotSubject(row[0], row[1]), row[2], row[3], row[4]) for row in rows]


_READ = select(
    *(_c.kind, _c.key, _c.version, _c.upstream_id, _c.body, _c.hash, _c.size),
    *(_c.last_updated_at, _c.last_checked_at, _c.missing_since, _c.last_asked_at),
)
_status = snapshot_status.c
_STATUS_COLUMNS = (_status.state, _status.reason, _status.message, _status.tries, _status.changed_at)
_STATUS = select(*_STATUS_COLUMNS).where(_status.kind == bindparam("of_kind"), _status.key == bindparam("of_key"))
_RECORD_READ = (
    update(snapshots)
    .where(
        _c.kind == bindparam("of_kind"),
        _c.key == bindparam("of_key"),
        (_c.last_asked_at.is_(None)) | (_c.last_asked_at < bindparam("asked_at")),
    )
    .values(
        last_asked_at=bindparam("asked_at"),
        tier=TIER_NUMBERS[Tier.HOT],
        # Only earlier, never later: a subject that is due soon stays due. Null stays null,
        # which marks a subject as new.
        next_due_at=case(
            (_c.next_due_at > bindparam("due_before", type_=UtcDateTime), bindparam("due_before", type_=UtcDateTime)),
            else_=_c.next_due_at,
        ),
    )
)


class _CurrentRow(msgspec.Struct, frozen=True):
    version: int
    hash: str | None
    last_checked_at: datetime | None
    missing_since: datetime | None
    changes: int
    change_rate: float | None

    @property
    def current_hash(self) -> str | None:
        """None for a subject that the upstream no longer has, although its last body is kept."""
        return None if self.missing_since is not None else self.hash


def _lock_rows(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, _CurrentRow]:
    """Insert missing rows, and return all rows locked until the commit."""
    empty = {"version": 0, "size": 0, "checks": 0, "changes": 0}
    made = [{"kind": each.kind, "key": each.key, "sample_place": sample_place(each), **empty} for each in subjects]
    # A row that does not exist cannot be locked. Inserted in key order like all writes, which avoids deadlocks.
    tx.insert_many(snapshots, made, skip_existing=True)
    columns = (_c.version, _c.hash, _c.last_checked_at, _c.missing_since, _c.changes, _c.change_rate)
    # Without the bodies: comparing needs only hashes.
    those = select(_c.kind, _c.key, *columns).where(_of_subjects(subjects))
    rows = tx.execute(those.order_by(_c.kind, _c.key).with_for_update())
    return {SnapshotSubject(row[0], row[1]): _CurrentRow(*row[2:]) for row in rows}


_WRITE = (
    update(snapshots)
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"))
    .values(
        version=bindparam("new_version"),
        upstream_id=bindparam("new_upstream_id"),
        body=bindparam("new_body"),
        hash=bindparam("new_hash"),
        size=bindparam("new_size"),
        last_updated_at=bindparam("checked"),
        last_checked_at=bindparam("checked"),
        missing_since=bindparam("missing"),
        checks=_c.checks + 1,
        changes=_c.changes + 1,
        change_rate=bindparam("new_rate"),
    )
)
_CHECK = (
    update(snapshots)
    .where(_c.kind == bindparam("of_kind"), _c.key == bindparam("of_key"))
    .values(
        version=bindparam("new_version"),
        last_checked_at=bindparam("checked"),
        missing_since=bindparam("missing"),
        checks=_c.checks + 1,
        change_rate=bindparam("new_rate"),
    )
)


def _write(tx: Transaction, results: Sequence[Refreshed], present: Mapping[SnapshotSubject, _CurrentRow]) -> None:
    rows = [
        _row(each, present[each.subject])
        | {"new_upstream_id": each.upstream_id, "new_body": each.body, "new_hash": each.hash, "new_size": each.size}
        for each in results
    ]
    if rows:
        tx.execute(_WRITE, rows)


def _check(tx: Transaction, results: Sequence[Refreshed], present: Mapping[SnapshotSubject, _CurrentRow]) -> None:
    rows = [_row(each, present[each.subject]) for each in results]
    if rows:
        tx.execute(_CHECK, rows)


def _row(result: Refreshed, before: _CurrentRow) -> dict[str, Any]:
    """Return the columns that every result writes."""
    checked = result.checked_at
    return {
        "of_kind": result.subject.kind,
        "of_key": result.subject.key,
        "new_version": result.version,
        "checked": checked,
        "missing": None if result.body is not None else before.missing_since or checked,
        "new_rate": _rate(result, before),
    }


def _rate(result: Refreshed, before: _CurrentRow) -> float | None:
    """Return the updated change rate; unchanged if there is no earlier body to compare with."""
    if before.last_checked_at is None or before.hash is None or result.body is None:
        return before.change_rate
    # Not negative: the server's clock may have been set back.
    elapsed = max(0.0, (result.checked_at - before.last_checked_at) / timedelta(days=1))
    # The first body is not counted as a change.
    return learn(before.change_rate, max(0, before.changes - 1), elapsed, changed=before.hash != result.hash)


def _add_history(tx: Transaction, results: Sequence[Refreshed]) -> None:
    rows = [
        {
            "kind": each.subject.kind,
            "key": each.subject.key,
            "version": each.version,
            "changed_at": each.checked_at,
            "day": each.checked_at.astimezone(UTC).date(),
            "body": each.body,
            "hash": each.hash,
            "size": each.size,
        }
        for each in results
    ]
    # A repeated commit adds the same version again.
    tx.insert_many(snapshot_history, rows, skip_existing=True)


def _clear_status(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> None:
    if subjects:
        tx.execute(delete(snapshot_status).where(_of_subjects(subjects, snapshot_status)))


def _of_subjects(subjects: Iterable[SnapshotSubject], table: Table = snapshots) -> ColumnElement[bool]:
    """Return a condition per kind, not on (kind, key) pairs: SQLite would scan the whole table for pairs."""
    keys: dict[str, list[str]] = {}
    for each in subjects:
        keys.setdefault(each.kind, []).append(each.key)
    return or_(false(), *(and_(table.c.kind == kind, table.c.key.in_(some)) for kind, some in keys.items()))


def _snapshot(row: Any) -> SnapshotRow:
    return SnapshotRow(
        subject=SnapshotSubject(row.kind, row.key),
        version=row.version,
        upstream_id=row.upstream_id,
        body=row.body,
        hash=row.hash,
        size=row.size,
        last_updated_at=row.last_updated_at,
        last_checked_at=row.last_checked_at,
        missing_since=row.missing_since,
        last_asked_at=row.last_asked_at,
    )
