"""Everything that one transaction writes: claims of new jobs, and the results of claimed ones.

`CommitPolicy` holds what the sources of a process require of each batch; `write_batch` is the transaction.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tidegate.engine import allowance_records, executions, job_store, parked_answer_store
from tidegate.engine.job_store import Claim, JobResult, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.run_counters import Planning, update_runs
from tidegate.engine.settings import CollectSettings
from tidegate.storage.documents import Staged
from tidegate.storage.sql import Transaction

_MOST_WEIGHT = 500


class EffectWriter(Protocol):
    """Writes the effects of a source's answers, in the transaction that ends their jobs."""

    def write(self, tx: Transaction, results: Sequence[JobResult], /) -> None:
        """Write all results of the source in this batch, each with its `effects` and the `credential` of its call.

        These include failed jobs and jobs that will be retried. The same results can be passed again after a rolled
        back transaction. If this raises, each result is written in a batch of its own, and a result that still fails
        is retried as if its call had failed.
        """
        ...


class CommitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources of a process require of each batch."""

    planning: Planning = {}
    writers: Mapping[str, EffectWriter] = {}
    """Writers by source name."""
    records_claims: frozenset[str] = frozenset()
    """Sources of which executions are recorded when they begin; all others are recorded when they end."""
    max_attempts: int = CollectSettings().max_attempts
    """Maximum number of attempts of follow-up jobs."""


class WriteGroup(msgspec.Struct, frozen=True):
    """Results with the documents that are written together."""

    finished: Sequence[JobResult]
    staged: Staged | None = None


class CommitBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one transaction."""

    wanted: Sequence[int] = ()
    """Jobs to be claimed."""
    callers: Mapping[int, str] = {}
    """The credentials of those jobs, if their claims are recorded."""
    kept: Sequence[tuple[Claim, ParkedAnswer]] = ()
    """Answers to be stored before they are read."""
    groups: Sequence[WriteGroup] = ()
    late: Sequence[JobResult] = ()
    """Results of jobs that were claimed by another worker. Only their calls are counted."""
    finds_overtaken: bool = False
    """Whether to check for overtaken results before anything is written."""

    @property
    def finished(self) -> list[JobResult]:
        """The results of all groups."""
        return [one for group in self.groups for one in group.finished]


class CommitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one transaction."""

    claimed: dict[int, Claim] = {}
    offers: Sequence[StoredJob] = ()
    """Jobs to be enqueued in the gate."""
    overtaken: Sequence[JobResult] = ()
    """Results of jobs that another worker has claimed. If there are any, nothing was written: their documents are
    staged together with the others."""


def take(waiting: deque[JobResult]) -> list[JobResult]:
    """Remove and return as many results as one batch may have, so that its transaction stays short."""
    taken, weight = list[JobResult](), 0
    while waiting and weight < _MOST_WEIGHT:
        taken.append(waiting.popleft())
        weight += taken[-1].weight
    return taken


def write_batch(tx: Transaction, this: CommitBatch, policy: CommitPolicy) -> CommitOutcome:
    """Write a batch, unless some of its results were overtaken: then write nothing.

    The statement that ends the jobs compares their fencing tokens, and its row count tells whether all were valid: one
    statement less for each batch. If not, `ClaimsLost` is raised, and the caller repeats the batch with
    `finds_overtaken`, which returns the overtaken results.

    Jobs are locked before runs, and both in the order of their ids, as by everything else that locks them (`claims`).
    """
    finished = this.finished
    # Results come first, so that `ours` can be split at their number.
    claims = [one.claim for one in finished] + [claim for claim, _ in this.kept]
    # Stored answers are written by job id, so their claims must be checked before. With jobs to be claimed, one
    # statement has to lock all job rows in the order of their ids; SQLite has one writer and needs no such order.
    checks_first = this.finds_overtaken or bool(this.kept) or (bool(this.wanted) and tx.dialect != "sqlite")
    if claims and checks_first:
        ours = job_store.still_ours(tx, claims, this.wanted)
        if not all(ours[: len(finished)]):
            return CommitOutcome(overtaken=[one for one, is_ours in zip(finished, ours, strict=False) if not is_ours])
        is_kept = zip(this.kept, ours[len(finished) :], strict=True)
        if kept := {claim.job.id: parked for (claim, parked), is_ours in is_kept if is_ours}:
            parked_answer_store.park_all(tx, kept)
    # The fencing tokens are compared here, before anything else of the results is written.
    job_store.write_endings(tx, finished, are_verified=checks_first)
    executions.end(tx, finished)
    for group in this.groups:
        if group.staged is not None:
            group.staged.apply(tx)
    if policy.writers:
        _write_effects(tx, finished, policy.writers)
    # Before `update_runs`, which locks the runs: jobs are locked first.
    claimed = job_store.claim(tx, this.wanted)
    if policy.records_claims:
        executions.begin(tx, claimed.values(), this.callers, policy.records_claims)
    added = update_runs(tx, finished, policy.planning, max_attempts=policy.max_attempts, late=this.late)
    allowance_records.write(tx, (*finished, *this.late))
    # The settlement removes these jobs from the gate, so they enter it again together with the follow-ups.
    again = [
        msgspec.structs.replace(one.claim.job, not_before=one.not_before, spec=one.spec or one.claim.job.spec)
        for one in finished
        if one.state is JobState.READY
    ]
    return CommitOutcome(claimed=claimed, offers=[*added, *again])


def _write_effects(tx: Transaction, finished: Sequence[JobResult], writers: Mapping[str, EffectWriter]) -> None:
    """Call each source's writer with its results, except those that must end without it."""
    by_source: defaultdict[str, list[JobResult]] = defaultdict(list)
    for one in finished:
        if one.has_writer and one.source in writers:
            by_source[one.source].append(one)
    for source, results in by_source.items():
        writers[source].write(tx, results)
