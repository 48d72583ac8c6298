"""Everything that one transaction writes: claims of new jobs, and whatever became of claimed ones."""

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from tidegate.engine import allowance_records, executions, job_store, parked_answer_store
from tidegate.engine.commit_policy import CommitPolicy, write_effects
from tidegate.engine.job_results import JobResult
from tidegate.engine.job_store import Claim, StoredJob
from tidegate.engine.lifecycle import JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.run_counters import update_runs
from tidegate.storage.documents import Staged
from tidegate.storage.sql import Transaction

_MOST_WEIGHT = 500


class Group(msgspec.Struct, frozen=True):
    """Results whose documents are written together."""

    finished: Sequence[JobResult]
    staged: Staged | None = None


class CommitBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What to write."""

    wanted: Sequence[int] = ()
    """Jobs to be claimed."""
    callers: Mapping[int, str] = {}
    """Who is to make the calls of those, where somebody wants to know."""
    kept: Sequence[tuple[Claim, ParkedAnswer]] = ()
    """Answers to be stored before they are read."""
    groups: Sequence[Group] = ()
    late: Sequence[JobResult] = ()
    """Results that came too late, whose calls count all the same."""

    @property
    def finished(self) -> list[JobResult]:
        """The results of all groups."""
        return [one for group in self.groups for one in group.finished]


def take(waiting: deque[JobResult]) -> list[JobResult]:
    """As many as one round should have, so that it does not take long; what is taken is not waiting any more."""
    taken, weight = list[JobResult](), 0
    while waiting and weight < _MOST_WEIGHT:
        taken.append(waiting.popleft())
        weight += taken[-1].weight
    return taken


class CommitOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    claimed: dict[int, Claim] = {}
    offers: Sequence[StoredJob] = ()
    """Jobs that the gate has to be told of."""
    overtaken: Sequence[JobResult] = ()
    """Results that are not ours to write. If there are some, nothing was: their documents stand among the others."""


def write_batch(tx: Transaction, this: CommitBatch, terms: CommitPolicy) -> CommitOutcome:
    """Write a round, unless some of its results are not ours any more: then say which."""
    finished = this.finished
    claims = [one.ending.claim for one in finished] + [claim for claim, _ in this.kept]
    if claims:
        ours = job_store.still_ours(tx, claims)
        if not all(ours[: len(finished)]):
            return CommitOutcome(overtaken=[one for one, is_ours in zip(finished, ours, strict=False) if not is_ours])
        is_kept = zip(this.kept, ours[len(finished) :], strict=True)
        if kept := {claim.job.id: parked for (claim, parked), is_ours in is_kept if is_ours}:
            parked_answer_store.park_all(tx, kept)
    for group in this.groups:
        if group.staged is not None:
            group.staged.apply(tx)
    if terms.writers:
        write_effects(tx, finished, terms.writers)
    endings = [one.ending for one in finished]
    job_store.write_endings(tx, endings)
    claimed = job_store.claim(tx, this.wanted)
    if terms.recorded:
        executions.record(tx, endings, claimed.values(), this.callers, terms.recorded)
    added = update_runs(tx, endings, terms, late=[one.ending for one in this.late])
    allowance_records.write(tx, (*finished, *this.late))
    again = [
        msgspec.structs.replace(
            ending.claim.job, not_before=ending.not_before, spec=ending.spec or ending.claim.job.spec
        )
        for ending in endings
        if ending.state is JobState.READY
    ]
    return CommitOutcome(claimed=claimed, offers=[*added, *again])
