"""What is written of subjects; every function works in the caller's transaction.

The invariant: a version never goes back. Rows are locked in the order of their keys, and `precedence` decides under
the lock: a result whose request was sent before that of the row writes nothing, whichever process brings it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Table, and_, bindparam, case, delete, false, or_, select, update

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.columns import UtcDateTime
from tidegate.systems.snapshots import versions
from tidegate.systems.snapshots.model import SnapshotSubject, digest, pack
from tidegate.systems.snapshots.prefetch.policies import TIER_NUMBERS, Tier, fraction, learn
from tidegate.systems.snapshots.tables import snapshot_history, snapshot_status, snapshots

_c = snapshots.c
LOOK_WITHIN = timedelta(hours=1)
RETRYING, FAILED = "RETRYING", "FAILED"
SAMPLE_PLACES = 2**31
_SAMPLE_SALT = 1
"""The order of samples is not the order in which subjects are asked for by the clock."""
"""States of a subject whose refresh did not succeed; success has no row."""


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subject as its row has it."""

    subject: SnapshotSubject
    version: int
    upstream_id: str | None
    body: bytes | None
    """Compressed; None where the upstream never had it."""
    hash: str | None
    size: int
    last_updated_at: datetime | None
    last_checked_at: datetime | None
    missing_since: datetime | None
    last_asked_at: datetime | None


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What a call to the upstream brought."""

    subject: SnapshotSubject
    version: int
    """See `versions.version_of_result`."""
    checked_at: datetime
    """When the request was sent, by the server's clock."""
    body: bytes | None
    """As it is kept, compressed; None: the upstream says that there is no such subject."""
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
        """A body as the upstream gave it, ready to be written."""
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
    """What became of a result."""

    subject: SnapshotSubject
    version: int
    is_taken: bool
    """False: a newer one is there already."""
    is_changed: bool


def get_many(tx: Transaction, subjects: Iterable[SnapshotSubject]) -> dict[SnapshotSubject, SnapshotRow]:
    """Those that are known."""
    return {each.subject: each for each in map(_snapshot, tx.execute(_READ.where(_among(subjects))))}


class KnownSubject(msgspec.Struct, frozen=True):
    """What is known of a subject."""

    row: SnapshotRow | None
    trouble: "RefreshStatus | None"
    """What is wrong with its refresh."""


def look_many(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, KnownSubject]:
    """What is known of these, and what is wrong with their refreshes."""
    rows = get_many(tx, subjects)
    those = select(_status.kind, _status.key, *_TROUBLE_COLUMNS).where(_among(subjects, snapshot_status))
    troubles = {SnapshotSubject(row[0], row[1]): _trouble(row[2:]) for row in tx.execute(those)}
    return {each: KnownSubject(rows.get(each), troubles.get(each)) for each in subjects}


def write_round(tx: Transaction, results: Sequence[Refreshed], keeps_history: bool = True) -> list[WriteEffect]:
    """Write results, each subject's newest; tells what became of each, in the order given.

    `keeps_history`: what changed is remembered beside what it changed to.
    """
    newest = versions.newest(results)
    present = _locked(tx, sorted(newest))
    taken = [newest[each] for each in sorted(newest) if versions.counts(newest[each], present[each])]
    # What went missing keeps its last body, for those who want to see what it was.
    changed = {each.subject for each in taken if each.body is not None and present[each.subject].hash != each.hash}
    _write(tx, [each for each in taken if each.subject in changed], present)
    if keeps_history:
        _remember(tx, [each for each in taken if each.subject in changed])
    _check(tx, [each for each in taken if each.subject not in changed], present)
    _clear_status(tx, [each.subject for each in taken])
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


def touch_asked(
    tx: Transaction, asked: Mapping[SnapshotSubject, datetime], look_within: timedelta = LOOK_WITHIN
) -> None:
    """Note when subjects were last asked for; a time never goes back. They are HOT from then on.

    Who plans the calls that nobody waits for looks at them again within `look_within`: they are read now.
    """
    rows = [
        {"of_kind": subject.kind, "of_key": subject.key, "asked_at": at, "look_at": at + look_within}
        for subject, at in sorted(asked.items(), key=lambda each: each[0])
    ]
    if rows:
        tx.execute(_ASKED, rows)


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A refresh that failed: for good, or it is being tried again."""

    subject: SnapshotSubject
    state: str = FAILED
    version: int | None
    """Of the call that failed, or of its event where none was made; None: unknown."""
    reason: str
    message: str
    tries: int


def note_failures(tx: Transaction, failures: Sequence[FailedAttempt]) -> list[FailedAttempt]:
    """Note refreshes that failed. Those that count: the others have as new a success, or a newer one."""
    if not failures:
        return []
    present = _locked(tx, sorted({each.subject for each in failures}))
    counted = [
        each
        for each in failures
        if each.version is None or versions.failure_counts(each.version, present[each.subject].version)
    ]
    for each in counted:
        _note(tx, each)
    # Made to be locked, and of no other use: a row that was never written would be planned for.
    if unwritten := [subject for subject, row in present.items() if not row.version]:
        tx.execute(delete(snapshots).where(_among(unwritten)))
    return counted


def _note(tx: Transaction, failure: FailedAttempt) -> None:
    key = {"kind": failure.subject.kind, "key": failure.subject.key}
    values = {
        "state": failure.state,
        "reason": failure.reason,
        "message": failure.message[:2000],
        "tries": failure.tries,
        "changed_at": tx.now,
    }
    at = snapshot_status.c
    moved = tx.execute(update(snapshot_status).where(at.kind == key["kind"], at.key == key["key"]).values(values))
    if moved.rowcount == 0:
        tx.insert_many(snapshot_status, [key | values], skip_existing=True)


class RefreshStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Why a refresh did not succeed yet."""

    state: str
    reason: str
    message: str
    tries: int
    changed_at: datetime

    @property
    def has_failed(self) -> bool:
        """Whether nobody tries again before it is asked for again."""
        return self.state == FAILED


def trouble_of(tx: Transaction, subject: SnapshotSubject) -> RefreshStatus | None:
    """What is wrong with the refresh of a subject; None where nothing is."""
    row = tx.execute(_TROUBLE, {"of_kind": subject.kind, "of_key": subject.key}).one_or_none()
    return None if row is None else _trouble(row)


def _trouble(row: Sequence[Any]) -> RefreshStatus:
    return RefreshStatus(state=row[0], reason=row[1], message=row[2], tries=row[3], changed_at=row[4])


def troubled(tx: Transaction, limit: int = 100) -> list[tuple[SnapshotSubject, str, str, int]]:
    """Subjects whose refresh is being tried again or has failed, the latest first: state, reason, tries."""
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
_TROUBLE_COLUMNS = (_status.state, _status.reason, _status.message, _status.tries, _status.changed_at)
_TROUBLE = select(*_TROUBLE_COLUMNS).where(_status.kind == bindparam("of_kind"), _status.key == bindparam("of_key"))
_ASKED = (
    update(snapshots)
    .where(
        _c.kind == bindparam("of_kind"),
        _c.key == bindparam("of_key"),
        (_c.last_asked_at.is_(None)) | (_c.last_asked_at < bindparam("asked_at")),
    )
    .values(
        last_asked_at=bindparam("asked_at"),
        tier=TIER_NUMBERS[Tier.HOT],
        next_due_at=case(
            (_c.next_due_at > bindparam("look_at", type_=UtcDateTime), bindparam("look_at", type_=UtcDateTime)),
            else_=_c.next_due_at,
        ),
    )
)


class _Present(msgspec.Struct, frozen=True):
    version: int
    hash: str | None
    last_checked_at: datetime | None
    missing_since: datetime | None
    changes: int
    change_rate: float | None

    @property
    def current_hash(self) -> str | None:
        """A subject that went missing keeps its last body, which is not what the upstream has."""
        return None if self.missing_since is not None else self.hash


def _sample_place(subject: SnapshotSubject) -> int:
    """The place of a subject in a random order of all subjects; the same in every process."""
    return int(fraction(subject, _SAMPLE_SALT) * SAMPLE_PLACES)


def _locked(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> dict[SnapshotSubject, _Present]:
    """The rows of these subjects, made where there are none, and ours until the commit."""
    empty = {"version": 0, "size": 0, "checks": 0, "changes": 0}
    made = [{"kind": each.kind, "key": each.key, "sample_place": _sample_place(each), **empty} for each in subjects]
    tx.insert_many(snapshots, made, skip_existing=True)
    columns = (_c.version, _c.hash, _c.last_checked_at, _c.missing_since, _c.changes, _c.change_rate)
    those = select(_c.kind, _c.key, *columns).where(_among(subjects))
    rows = tx.execute(those.order_by(_c.kind, _c.key).with_for_update())
    return {SnapshotSubject(row[0], row[1]): _Present(*row[2:]) for row in rows}


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


def _write(tx: Transaction, results: Sequence[Refreshed], present: Mapping[SnapshotSubject, _Present]) -> None:
    rows = [
        _row(each, present[each.subject])
        | {"new_upstream_id": each.upstream_id, "new_body": each.body, "new_hash": each.hash, "new_size": each.size}
        for each in results
    ]
    if rows:
        tx.execute(_WRITE, rows)


def _check(tx: Transaction, results: Sequence[Refreshed], present: Mapping[SnapshotSubject, _Present]) -> None:
    rows = [_row(each, present[each.subject]) for each in results]
    if rows:
        tx.execute(_CHECK, rows)


def _row(result: Refreshed, before: _Present) -> dict[str, Any]:
    """What every result writes."""
    checked = result.checked_at
    return {
        "of_kind": result.subject.kind,
        "of_key": result.subject.key,
        "new_version": result.version,
        "checked": checked,
        "missing": None if result.body is not None else before.missing_since or checked,
        "new_rate": _rate(result, before),
    }


def _rate(result: Refreshed, before: _Present) -> float | None:
    """What this check tells of how often the subject changes: nothing, where there is nothing to compare."""
    if before.last_checked_at is None or before.hash is None or result.body is None:
        return before.change_rate
    # Never negative: the server's clock may have been set back.
    elapsed = max(0.0, (result.checked_at - before.last_checked_at) / timedelta(days=1))
    # The first body of all was no change.
    return learn(before.change_rate, max(0, before.changes - 1), elapsed, changed=before.hash != result.hash)


def _remember(tx: Transaction, results: Sequence[Refreshed]) -> None:
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
    tx.insert_many(snapshot_history, rows, skip_existing=True)


def _clear_status(tx: Transaction, subjects: Sequence[SnapshotSubject]) -> None:
    if subjects:
        tx.execute(delete(snapshot_status).where(_among(subjects, snapshot_status)))


def _among(subjects: Iterable[SnapshotSubject], table: Table = snapshots) -> ColumnElement[bool]:
    """Kind by kind, and not as pairs: SQLite would go through the whole table for these."""
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
