"""Answers that are stored until their documents are, so that the call is not repeated.

An answer is parked by the transaction that returns its job because the document store is unavailable; or, for sources
that ask for it, before the answer is read, so that a reader that fails or crashes does not lose it. The next claim of
the job returns it. After an hour it is out of date, and the upstream is asked again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import delete, select

from tidegate.engine.tables import page_jobs, parked_answers
from tidegate.storage.sql import Transaction

KEPT_FOR = timedelta(hours=1)
_c = parked_answers.c


class ParkedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer, as `Answer.pack` made it."""

    credential: str
    """The credential that made the call."""
    answer: bytes
    parked_at: datetime


def park(tx: Transaction, job_id: int, parked: ParkedAnswer) -> None:
    """Store an answer for the next attempt of its job; it replaces an earlier one."""
    park_all(tx, {job_id: parked})


def park_all(tx: Transaction, answers: Mapping[int, ParkedAnswer]) -> None:
    """Store answers for the next attempts of their jobs, by job id; each replaces an earlier one."""
    forget(tx, list(answers))
    tx.insert_many(
        parked_answers, [{"job_id": job_id, **msgspec.structs.asdict(answers[job_id])} for job_id in sorted(answers)]
    )


def find(tx: Transaction, job_ids: Sequence[int]) -> dict[int, ParkedAnswer]:
    """Return the stored answers of these jobs; expired ones are deleted."""
    rows = tx.execute(select(parked_answers).where(_c.job_id.in_(job_ids))).all()
    oldest = tx.now - KEPT_FOR
    if too_old := [row.job_id for row in rows if row.parked_at < oldest]:
        forget(tx, too_old)
    return {
        row.job_id: ParkedAnswer(row.credential, row.answer, row.parked_at) for row in rows if row.parked_at >= oldest
    }


def forget(tx: Transaction, job_ids: Sequence[int]) -> None:
    """Delete the stored answers of these jobs."""
    tx.execute(delete(parked_answers).where(_c.job_id.in_(sorted(job_ids))))


def sweep(tx: Transaction) -> None:
    """Delete expired answers of jobs that are not claimed again."""
    tx.execute(delete(parked_answers).where(_c.parked_at < tx.now - KEPT_FOR))


def forget_run(tx: Transaction, run_id: int) -> None:
    """Delete the stored answers of the jobs of a run."""
    tx.execute(delete(parked_answers).where(_c.job_id.in_(select(page_jobs.c.id).where(page_jobs.c.run_id == run_id))))
