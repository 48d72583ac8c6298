"""Rows of jobs: insertion, claims and ends. Every function works in the caller's transaction.

`write_endings` writes the ends of jobs with their cursors and parked answers; the caller writes follow-up jobs and the
counters of the run in the same transaction. The fencing token decides whether a result counts: only the last claim of a
job may end it. Rows are locked in the order of their ids, so two workers cannot deadlock.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import ColumnElement, and_, func, select, update

from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.core.transitions import sources_of
from tidegate.engine import parked_answer_store
from tidegate.engine.cursors import CursorChange, move_cursors
from tidegate.engine.lifecycle import JOB_MOVES, JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.source import FIRST_PAGE, Cursor, JobSpec
from tidegate.engine.tables import collection_cursors, collection_runs, page_jobs
from tidegate.engine.upstream import Answer
from tidegate.primitives.gate import LearnedLimits, Settlement
from tidegate.storage.documents import Document, Listing
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Rows, Statement, parts

if TYPE_CHECKING:
    from tidegate.core.telemetry.spans import Span
    from tidegate.engine.upstream.call_records import CallRecord

LONGEST_REASON = 2000
"""Characters that are kept of the reason why a job, or its run, failed."""

_AT_ONCE = 500
_BY_ID = "FORCE INDEX (PRIMARY)"
"""For statements of MySQL that lock jobs: in a small table it may scan another index, and locks what it reads."""
Key = tuple[int, str, str, str]
"""Run, kind, resource and page: unique for each job."""


class StoredJob(msgspec.Struct, frozen=True, gc=False):
    """A job with its id, and what the gate needs to know."""

    id: int
    run_id: int
    pool: str
    spec: JobSpec
    not_before: datetime | None = None
    holder: str | None = None
    """The credential of the ETag that the last run stored for this resource; only for first pages."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """The right to end a job, until another worker claims it."""

    job: StoredJob
    source: str
    user_id: str
    fence: int
    attempt: int
    max_attempts: int
    cursor: Cursor | None
    parked: ParkedAnswer | None = None
    """The answer to this job, where an earlier worker got it and could not write its documents."""
    traceparent: str | None = None
    """The trace of its run, where that is traced."""
    claimed_at: datetime | None = None


class JobResult(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of a claimed job: what to write, and how its permit ends. `job_results` makes them."""

    claim: Claim
    state: JobState
    """SUCCEEDED, UNAVAILABLE, FAILED, or READY to be tried again."""
    settlement: Settlement
    reason: str = ""
    not_before: datetime | None = None
    is_attempt: bool = True
    """False where the upstream was not asked: such a try is not counted."""
    follow_ups: Sequence[JobSpec] = ()
    documents: Sequence[Document] = ()
    completed: Sequence[Listing] = ()
    effects: Sequence[Any] = ()
    """For the source's own writer, which writes them in the same transaction."""
    answer: Answer | None = None
    """The answer that the documents and effects were read from, in case the documents cannot be written."""
    cursor: Cursor | None = None
    has_gaps: bool = False
    """An item of its list could not be read: the cursor moves only if the run before had gaps too."""
    parked: ParkedAnswer | None = None
    """An answer to be kept for the next try."""
    spec: JobSpec | None = None
    """The request of the next try, where it differs from this one: redirects change it."""
    credential: str = ""
    """The credential that made the call, or was to make it."""
    calls: int = 0
    unchanged_calls: int = 0
    skipped: int = 0
    """Items of its list that could not be read."""
    has_writer: bool = True
    """False where the source's own writer failed: the job has to end without it."""
    learned: LearnedLimits | None = None
    """What the gate learned of its credential from a refusal, to be stored."""
    span: "Span | None" = None
    """The job's span, where it is traced; ended when this is written."""
    status: int | None = None
    """The status of the answer; None where there was none."""
    call: "CallRecord | None" = None
    """The request, where one was sent; for the record of the execution."""
    duration_ms: float | None = None
    """The duration of the job, where the log shows it (`job_log`)."""

    @property
    def source(self) -> str:
        """The source of its run. The documents are stored under its name."""
        return self.claim.source

    @property
    def needs_store(self) -> bool:
        """Whether the document store has to be asked."""
        return bool(self.documents or self.completed)

    @property
    def weight(self) -> int:
        """The cost of writing it, compared with a result without follow-ups and effects."""
        return 1 + len(self.follow_ups) // 4 + len(self.effects) // 4

    @property
    def size(self) -> int:
        """Approximate number of bytes that are held until it is written."""
        return 0 if self.answer is None else len(self.answer.body)


def key_of(run_id: int, spec: JobSpec) -> Key:
    """Return what is unique for each job."""
    return run_id, spec.kind, spec.resource, spec.page


def add_jobs(tx: Transaction, wanted: Iterable[tuple[int, JobSpec]], *, max_attempts: int) -> list[StoredJob]:
    """Insert those jobs that their runs do not have yet; return them, in order. The runs must be locked, or new.

    A run has each (kind, resource, page) once, however often it is found. Each job is tried `max_attempts` times before
    it fails.
    """
    # A job that several results of the batch found is inserted once.
    specs = {key_of(run_id, spec): spec for run_id, spec in wanted}
    given = [(*key, msgspec.json.encode(spec).decode(), spec.owner or None) for key, spec in specs.items()]
    added = [row for part in parts(given, lambda row: len(row[-2])) for row in _add(tx, part, max_attempts)]
    if not added:
        return []
    pools = {run[0]: run[1] for run in _RUNS.rows(tx, ids=sorted({row[1] for row in added}))}
    cursors = _cursors(tx, [job_id for job_id, *_, page in added if page == FIRST_PAGE])
    return [
        StoredJob(job_id, run_id, pools[run_id], specs[run_id, *key], None, _holder(cursors.get(job_id)))
        for job_id, run_id, *key in sorted(added, key=itemgetter(0))
    ]


def _add(tx: Transaction, given: Sequence[tuple[Any, ...]], tries: int) -> Rows:
    match tx.dialect:
        case "sqlite":  # one writer, and ids only grow
            (before,) = _LAST.run(tx).one()
            _INSERT.run(tx, given=given, now=tx.now, tries=tries)
            return _ADDED.rows(tx, first=(before or 0) + 1, run_ids=[])
        case "postgresql":
            return _INSERTED.rows(tx, given=given, now=tx.now, tries=tries)
        case "mysql":  # the runs are locked: their rows from the first new id on were inserted here
            inserted = _INSERT.run(tx, given=given, now=tx.now, tries=tries)
            runs = sorted({row[0] for row in given})
            return _ADDED.rows(tx, first=inserted.lastrowid, run_ids=runs) if inserted.rowcount else []


def claim(tx: Transaction, job_ids: Iterable[int]) -> dict[int, Claim]:
    """Claim the jobs that may run, raising their fencing tokens.

    The others ended, were canceled, wait for another run, or are unknown.
    """
    ids = sorted(set(job_ids))
    if not ids:
        return {}
    if tx.dialect == "postgresql":  # one round trip
        rows = _CLAIM_AND_RETURN.rows(tx, ids=ids, now=tx.now)
    else:
        # A RUNNING job can be claimed again, so every RUNNING job that is read next was claimed by this statement. Jobs
        # that wait for another run are never RUNNING.
        _CLAIM.run(tx, ids=ids, now=tx.now)
        rows = _CLAIMED.rows(tx, ids=ids)
    return _claims(tx, rows) if rows else {}


def still_ours(tx: Transaction, claims: Sequence[Claim], wanted: Sequence[int] = ()) -> list[bool]:
    """Return for each claim whether it is the last one of its job. The rows stay locked until the commit.

    Of two equal claims the first is valid and the second is not: a job ends once. Of the jobs that the transaction is
    to claim, `wanted`, those with lower ids are locked as well, since all locks are taken in the order of the ids.
    """
    ids = {claim.job.id for claim in claims}
    last = max(ids)
    rows = _HELD.rows(tx, ids=sorted(ids.union(job_id for job_id in wanted if job_id < last)))
    fences = {job_id: fence for job_id, fence, state in rows if state == JobState.RUNNING}
    ours: list[bool] = []
    for claim in claims:
        ours.append(fences.get(claim.job.id) == claim.fence)
        if ours[-1]:
            del fences[claim.job.id]
    return ours


class ClaimsLost(Exception):
    """Some results were overtaken: their jobs were claimed by another worker, or ended without one."""


def write_endings(tx: Transaction, results: Sequence[JobResult], *, are_verified: bool) -> None:
    """Write the rows of jobs that ended, and move the cursors of complete listings.

    Raises `ClaimsLost` if a claim is not the last one of its job; then the transaction must be rolled back. With
    `are_verified`, the caller has checked the claims with `still_ours`.
    """
    # Nearly all batches have results that end alike, which the cheapest statement writes.
    alike: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
    for one in results:
        # The claim counted an attempt. It is taken back if the upstream was not asked.
        uncounted = 0 if one.is_attempt else 1
        reason = fit_to_keep(one.reason, most=LONGEST_REASON) if one.reason else None
        end_state = None if one.state is JobState.READY else one.state.value
        outcome = (one.claim.fence, one.state.value, end_state, one.not_before, uncounted, reason or None)
        alike[outcome].add(one.claim.job.id)
    if not are_verified and len(alike) > 1 and tx.dialect != "sqlite":  # then one statement locks all rows, in order
        are_verified = all(still_ours(tx, [one.claim for one in results]))
    ended = 0
    if len(alike) == 1:
        [(outcome, ids)] = alike.items()
        values = dict(zip(_OUTCOME, outcome, strict=True))
        ended = _END.run(tx, ids=sorted(ids), now=None if values["end_state"] is None else tx.now, **values).rowcount
    elif alike:
        rows = [(job_id, *outcome) for outcome, ids in alike.items() for job_id in ids]
        ended = _END_EACH.run(tx, ended=rows, now=tx.now).rowcount
    # The statement compares fencing tokens, so a missing row is an overtaken result. A job that occurs twice is missing
    # too, because its row is changed once.
    if not are_verified and ended < len(results):
        raise ClaimsLost
    for one in results:
        # Only redirects change a request. They are rare enough for a statement of their own.
        if one.spec is not None:
            respecified = update(page_jobs).where(page_jobs.c.id == one.claim.job.id)
            tx.execute(respecified.values(spec=msgspec.to_builtins(one.spec)))
    moved = [
        CursorChange(
            one.claim.source,
            one.claim.user_id,
            one.claim.job.run_id,
            one.claim.job.spec,
            one.cursor,
            one.has_gaps,
        )
        for one in results
        if one.cursor is not None
    ]
    if moved:
        move_cursors(tx, moved)
    _write_parked(tx, results)


def unfinished(tx: Transaction, run_ids: Sequence[int], after: int, limit: int) -> list[StoredJob]:
    """Return unfinished jobs of these runs that wait for no other run, with ids above `after`, in order."""
    job = page_jobs.c
    those = (job.run_id.in_(run_ids), job.end_state.is_(None), job.awaits_run.is_(None))
    return stored_jobs(tx, *those, job.id > after, limit=limit)


def unfinished_of(tx: Transaction, job_ids: Sequence[int]) -> list[StoredJob]:
    """Return those of these jobs that are unfinished and wait for no other run."""
    those = (page_jobs.c.end_state.is_(None), page_jobs.c.awaits_run.is_(None))
    return stored_jobs(tx, page_jobs.c.id.in_(job_ids), *those)


def runs_of(tx: Transaction, job_ids: Sequence[int]) -> list[int]:
    """Return the runs that these jobs belong to."""
    found = select(page_jobs.c.run_id).where(page_jobs.c.id.in_(sorted(job_ids))).distinct()
    return [row.run_id for row in tx.execute(found)]


def lock_jobs(tx: Transaction, job_ids: Sequence[int], states: Collection[JobState]) -> list[int]:
    """Lock those of these jobs that are in one of the states, and return them, in the order of their ids.

    They are found by their ids: in the order of another index, two transactions could wait for each other.
    """
    job, locked = page_jobs.c, list[int]()
    for ids in in_parts(sorted(job_ids)):
        those = select(job.id).where(job.id.in_(ids), job.status.in_(states)).order_by(job.id).with_for_update()
        locked += tx.execute(
            those.with_hint(page_jobs, _BY_ID, "mysql").with_hint(page_jobs, _BY_ID, "mariadb")
        ).scalars()
    return locked


def in_parts(job_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split a list of any length into lists that one statement can take."""
    return (job_ids[start : start + _AT_ONCE] for start in range(0, len(job_ids), _AT_ONCE))


def stored_jobs(tx: Transaction, *those: ColumnElement[bool], limit: int | None = None) -> list[StoredJob]:
    """Return the jobs that meet these conditions, in the order of their ids."""
    found = tx.execute(_STORED.where(*those).order_by(page_jobs.c.id).limit(limit))
    return [
        StoredJob(job_id, run_id, pool, msgspec.convert(spec, JobSpec), not_before, holder)
        for job_id, run_id, spec, not_before, pool, holder in found
    ]


_COLUMNS = (
    "run_id, job_type, resource_key, page_key, spec, owner, status, fence, attempt_count, max_attempts, created_at"
)
_GIVEN = ":given(run_id number, job_type text, resource_key text, page_key text, spec text, owner text)"
_NEW = f"given.run_id, job_type, resource_key, page_key, spec, owner, '{JobState.ENQUEUED}', 0, 0"
_ADDED_NAMES = ("id", "run_id", "job_type", "resource_key", "page_key")
_ADDED_COLUMNS = ", ".join(_ADDED_NAMES)
# With the columns: without them, PostgreSQL looks in every unique index, also in that of the new id.
_UNLESS_FOUND = "ON CONFLICT (run_id, job_type, resource_key, page_key) DO NOTHING"
_LAST = Statement("SELECT max(id) FROM page_jobs")
_INSERT = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"""
INSERT INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries, :now FROM {_GIVEN} WHERE true {_UNLESS_FOUND}""",  # noqa: S608
        # `lastrowid` is the id of the first row that was inserted.
        "mysql": f"INSERT IGNORE INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries, :now FROM {_GIVEN}",  # noqa: S608
    }
)
_ADDED = Statement(
    {
        "sqlite": f"SELECT {_ADDED_COLUMNS} FROM page_jobs WHERE id >= :first",  # noqa: S608
        "mysql": f"SELECT {_ADDED_COLUMNS} FROM page_jobs WHERE id >= :first AND run_id IN :run_ids[]",  # noqa: S608
    },
    returns=_ADDED_NAMES,
)
_INSERTED = Statement(
    {
        "postgresql": f"""
INSERT INTO page_jobs ({_COLUMNS}) SELECT {_NEW}, :tries::integer, :now::timestamptz FROM {_GIVEN}
{_UNLESS_FOUND} RETURNING {_ADDED_COLUMNS}""",  # noqa: S608
    },
    returns=_ADDED_NAMES,
)

_STORED = (
    select(
        *(page_jobs.c.id, page_jobs.c.run_id, page_jobs.c.spec, page_jobs.c.not_before),
        *(collection_runs.c.pool, collection_cursors.c.last_credential),
    )
    .join_from(page_jobs, collection_runs)
    .join(
        collection_cursors,
        and_(
            page_jobs.c.page_key == FIRST_PAGE,
            collection_cursors.c.source == collection_runs.c.source,
            collection_cursors.c.user_id == func.coalesce(page_jobs.c.owner, collection_runs.c.user_id),
            collection_cursors.c.resource_type == page_jobs.c.job_type,
            collection_cursors.c.resource_key == page_jobs.c.resource_key,
            collection_cursors.c.last_etag.is_not(None),
        ),
        isouter=True,
    )
)

_STATES = ", ".join(f"'{state}'" for state in sorted(sources_of(JOB_MOVES, JobState.RUNNING)))
# Not IS NULL: the index of waiting jobs would find nearly all jobs, in another order than that of the ids.
_CLAIMABLE = f"status IN ({_STATES}) AND coalesce(awaits_run, 0) = 0"
_RAISE = f"""
UPDATE page_jobs
SET status = '{JobState.RUNNING}', fence = fence + 1, attempt_count = attempt_count + 1, started_at = :now
WHERE id"""  # noqa: S608
_CLAIM = Statement(f"{_RAISE} IN :ids[] AND {_CLAIMABLE}")
_CLAIM_NAMES = ("id", "run_id", "spec", "owner", "fence", "attempt_count", "max_attempts")
_CLAIMED = Statement(
    f"SELECT {', '.join(_CLAIM_NAMES)} FROM page_jobs WHERE id IN :ids[] AND status = '{JobState.RUNNING}'",  # noqa: S608
    returns=_CLAIM_NAMES,
)
# The inner SELECT, here and below, locks the rows, because an UPDATE of PostgreSQL does not lock them in order. It
# is an array and not a join: the plan is an index scan then, whatever the statistics say of a table that grows.
_CLAIM_AND_RETURN = Statement(
    {
        "postgresql": f"""
{_RAISE} = ANY(ARRAY(SELECT id FROM page_jobs WHERE id IN :ids[] AND {_CLAIMABLE} ORDER BY id FOR UPDATE))
RETURNING {", ".join(_CLAIM_NAMES)}""",  # noqa: S608
    },
    returns=_CLAIM_NAMES,
)
_RUN_NAMES = ("id", "pool", "source", "user_id", "traceparent")
_RUNS = Statement(f"SELECT {', '.join(_RUN_NAMES)} FROM collection_runs WHERE id IN :ids[]", returns=_RUN_NAMES)  # noqa: S608
_CURSOR_NAMES = ("id", "last_cursor", "last_timestamp", "last_etag", "last_credential")
_CURSORS = Statement(
    """
SELECT j.id, c.last_cursor, c.last_timestamp, c.last_etag, c.last_credential FROM page_jobs j
JOIN collection_runs r ON r.id = j.run_id
JOIN collection_cursors c
  ON c.source = r.source AND c.user_id = coalesce(j.owner, r.user_id)
 AND c.resource_type = j.job_type AND c.resource_key = j.resource_key
WHERE j.id IN :ids[]""",
    returns=_CURSOR_NAMES,
)
_HOLD = f"WHERE id IN :ids[] AND status IN ({_STATES}) ORDER BY id"
_HELD = Statement(
    {
        "sqlite": f"SELECT id, fence, status FROM page_jobs {_HOLD}",  # noqa: S608
        "postgresql": f"SELECT id, fence, status FROM page_jobs {_HOLD} FOR UPDATE",  # noqa: S608
        "mysql": f"SELECT id, fence, status FROM page_jobs {_BY_ID} {_HOLD} FOR UPDATE",  # noqa: S608
    },
    returns=("id", "fence", "status"),
)
_OUTCOME = ("fence", "state", "end_state", "again_at", "uncounted", "reason")
_SET_END = """
SET status = :state, end_state = :end_state, completed_at = :now, not_before = :again_at,
    attempt_count = attempt_count - :uncounted, last_error = :reason
WHERE id"""
# The state is compared too, because canceling or failing a run does not raise the fencing tokens of its jobs.
_OURS = f"IN :ids[] AND fence = :fence AND status = '{JobState.RUNNING}'"
_END = Statement(
    {
        "sqlite": f"UPDATE page_jobs {_SET_END} {_OURS}",
        "postgresql": f"""
UPDATE page_jobs {_SET_END} = ANY(ARRAY(SELECT id FROM page_jobs WHERE id {_OURS} ORDER BY id FOR UPDATE))""",  # noqa: S608
        "mysql": f"UPDATE page_jobs {_BY_ID} {_SET_END} {_OURS}",
    }
)
_EACH = """:ended(
  job_id number, token number, state key, end_as key, again_at moment, uncounted number, reason text
)"""
_SET_EACH = """
SET status = ended.state, end_state = ended.end_as, not_before = ended.again_at, last_error = ended.reason,
    completed_at = CASE WHEN ended.end_as IS NULL THEN NULL ELSE :now END,
    attempt_count = attempt_count - ended.uncounted"""
_OUR_EACH = f"page_jobs.id = ended.job_id AND page_jobs.fence = ended.token AND page_jobs.status = '{JobState.RUNNING}'"
_END_EACH = Statement(
    {
        "sqlite": f"UPDATE page_jobs {_SET_EACH} FROM {_EACH} WHERE {_OUR_EACH}",
        # `still_ours` has locked the rows.
        "postgresql": f"""
UPDATE page_jobs {_SET_EACH.replace(":now", ":now::timestamptz")} FROM {_EACH} WHERE {_OUR_EACH}""",
        # In this order: in a small table the server would read, and lock, all jobs.
        "mysql": f"UPDATE {_EACH} STRAIGHT_JOIN page_jobs {_BY_ID} ON {_OUR_EACH} {_SET_EACH}",
    }
)

_decode_spec = msgspec.json.Decoder(JobSpec).decode


def _claims(tx: Transaction, rows: Rows) -> dict[int, Claim]:
    """Complete claimed jobs with what belongs to their runs, with cursors, and with stored answers.

    These are statements of their own and not joins. A batch has few runs, and each batch changes their counters: on
    PostgreSQL, a join would search all recent versions of the run's row for each job.
    """
    runs = {run[0]: run for run in _RUNS.rows(tx, ids=sorted({row[1] for row in rows}))}
    specs = {row[0]: _decode_spec(row[2]) for row in rows}
    cursors = _cursors(tx, [job_id for job_id, spec in specs.items() if spec.page == FIRST_PAGE])
    again = [row[0] for row in rows if row[4] > 1]  # only an earlier claim can have left an answer
    parked = parked_answer_store.find(tx, again) if again else {}
    claimed: dict[int, Claim] = {}
    for job_id, run_id, _, owner, fence, attempt, max_attempts in rows:
        _, pool, source, subject, traceparent = runs[run_id]
        cursor = cursors.get(job_id)
        job = StoredJob(job_id, run_id, pool, specs[job_id], None, _holder(cursor))
        user_id, answer = owner or subject, parked.get(job_id)
        claimed[job_id] = Claim(job, source, user_id, fence, attempt, max_attempts, cursor, answer, traceparent, tx.now)
    return claimed


def _cursors(tx: Transaction, job_ids: Sequence[int]) -> dict[int, Cursor]:
    """Return the stored cursors of these jobs, which are first pages: further pages of a list have none."""
    # A row without values only notes gaps.
    rows = _CURSORS.rows(tx, ids=job_ids) if job_ids else []
    return {
        job_id: Cursor(cursor=cursor, timestamp=timestamp, etag=etag, credential=credential)
        for job_id, cursor, timestamp, etag, credential in rows
        if (cursor, timestamp, etag, credential) != (None, None, None, None)
    }


def _holder(cursor: Cursor | None) -> str | None:
    """Return the credential for which the ETag of a cursor is valid."""
    return None if cursor is None or cursor.etag is None else cursor.credential


def _write_parked(tx: Transaction, results: Sequence[JobResult]) -> None:
    """Store answers if their documents could not be written; delete those that are no longer needed."""
    for one in results:
        # By identity: the answer that came with the claim is stored already.
        if one.parked is not None and one.parked is not one.claim.parked:
            parked_answer_store.park(tx, one.claim.job.id, one.parked)
    over = [one.claim.job.id for one in results if one.claim.parked is not None and one.parked is None]
    if over:
        parked_answer_store.forget(tx, over)
