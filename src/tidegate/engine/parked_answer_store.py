"""Answers that are stored until what they brought is: the upstream has been asked, and need not be asked again.

An answer is parked by the transaction that gives its job back because the document store is away; or, for a source
that asks for it, before the answer is read, so that neither a failing nor a dying reader loses it. The claim of the
next try finds it. After an hour it says too little about how things are now: then the upstream is asked again.
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
    """Who made the call."""
    answer: bytes
    parked_at: datetime


def park(tx: Transaction, job_id: int, parked: ParkedAnswer) -> None:
    """Keep an answer for the next try of its job, in the place of any other."""
    park_all(tx, {job_id: parked})


def park_all(tx: Transaction, answers: Mapping[int, ParkedAnswer]) -> None:
    """Keep answers for the next try of their jobs, by job, each in the place of any other."""
    forget(tx, list(answers))
    tx.insert_many(
        parked_answers, [{"job_id": job_id, **msgspec.structs.asdict(answers[job_id])} for job_id in sorted(answers)]
    )


def find(tx: Transaction, job_ids: Sequence[int]) -> dict[int, ParkedAnswer]:
    """The answers of these jobs that still count; the others are forgotten."""
    rows = tx.execute(select(parked_answers).where(_c.job_id.in_(job_ids))).all()
    oldest = tx.now - KEPT_FOR
    if too_old := [row.job_id for row in rows if row.parked_at < oldest]:
        forget(tx, too_old)
    return {
        row.job_id: ParkedAnswer(row.credential, row.answer, row.parked_at) for row in rows if row.parked_at >= oldest
    }


def forget(tx: Transaction, job_ids: Sequence[int]) -> None:
    """These are not needed any more."""
    tx.execute(delete(parked_answers).where(_c.job_id.in_(sorted(job_ids))))


def sweep(tx: Transaction) -> None:
    """Forget what is too old, and belongs to jobs that nobody claims any more."""
    tx.execute(delete(parked_answers).where(_c.parked_at < tx.now - KEPT_FOR))


def forget_run(tx: Transaction, run_id: int) -> None:
    """None of a run's is needed any more."""
    tx.execute(delete(parked_answers).where(_c.job_id.in_(select(page_jobs.c.id).where(page_jobs.c.run_id == run_id))))
