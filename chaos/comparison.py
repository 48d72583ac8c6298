"""Compares the collected documents with the simulator, and counters with a recount."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import func, select

from chaos import audit
from tidegate.engine.lifecycle import UNFINISHED_JOBS, RunState
from tidegate.engine.run_counters import run_ended
from tidegate.engine.tables import collection_runs, page_jobs
from tidegate.storage.documents import DocumentStore
from tidegate.storage.sql import Transaction, outbox
from tidegate_simulators.github import GithubSimulator, Truth

_OF_A_REVIEW = ("id", "node_id", "state", "body", "submitted_at", "commit_id", "author_association", "html_url")
"""Reviews come by GraphQL, with fewer fields than the lists of the truth."""


class Comparison(msgspec.Struct, frozen=True):
    """How many documents there should be, and in what the copy differs."""

    documents: int
    differences: list[str]


def documents_of(truth: Truth) -> int:
    """How many documents a copy of this user has."""
    return sum(len(found) for found in _wanted(truth).values())


async def compare(
    github: GithubSimulator,
    documents: DocumentStore,
    logins: Sequence[str],
    *,
    kinds: Container[str],
) -> Comparison:
    """Compare the copy of these users with the truth, item by item."""
    count, differences = 0, list[str]()
    for login in logins:
        for kind, truly in _wanted(github.truth(login)).items():
            if kind not in kinds:
                continue
            copied = {found.id: _seen(kind, found.body) async for found in documents.iterate(kind, login)}
            gone = await documents.count(kind, login, with_gone=True) - await documents.count(kind, login)
            count += len(truly)
            if gone:
                differences.append(f"{login}: {gone} of {kind} are marked as gone, and are not")
            differences += _differences(f"{kind} of {login}", copied, truly)
    return Comparison(count, differences)


def _wanted(truth: Truth) -> dict[str, dict[str, Any]]:
    found = truth.repositories
    return {
        "user": {str(truth.profile["id"]): truth.profile},
        "event": {event["id"]: event for event in truth.events},
        "repository": {str(each.repository["id"]): each.repository for each in found},
        "issue": {str(item["id"]): item for each in found for item in each.issues},
        "pull_request": {str(item["id"]): item for each in found for item in each.pulls},
        "commit": {f"{each.repository['id']}:{item['sha']}": item for each in found for item in each.commits},
        "issue_comment": {str(item["id"]): item for each in found for item in each.issue_comments},
        "review_comment": {str(item["id"]): item for each in found for item in each.review_comments},
        "review": {str(item["id"]): _seen("review", item) for each in found for item in each.reviews},
    }


def _seen(kind: str, body: Any) -> Any:
    return {name: body[name] for name in _OF_A_REVIEW} if kind == "review" else body


def _differences(what: str, copied: Mapping[str, Any], truly: Mapping[str, Any]) -> list[str]:
    missing = truly.keys() - copied.keys()
    surplus = copied.keys() - truly.keys()
    different = [id_ for id_ in copied.keys() & truly.keys() if copied[id_] != truly[id_]]
    told = (("missing", missing), ("nobody knows", surplus), ("differ", different))
    return [f"{what}: {len(ids)} {word}, e.g. {min(ids)}" for word, ids in told if ids]


def disagreements(tx: Transaction, run_ids: Sequence[int]) -> list[str]:
    """Where counters differ from a recount, a run has not ended exactly once, or something is left undone."""
    told = list[str]()
    ended, told_of = audit.moves_into(tx, RunState.FINALIZING), audit.events_of(tx, run_ended("github"))
    completed = audit.moves_into(tx, RunState.COMPLETED)
    for run in tx.execute(select(collection_runs).where(collection_runs.c.id.in_(run_ids))):
        jobs = _states(tx, run.id)
        counted = {
            "total": (run.total_jobs, sum(jobs.values())),
            "succeeded": (run.succeeded_jobs, jobs.get("succeeded", 0) + jobs.get("unavailable", 0)),
            "failed": (run.failed_jobs, jobs.get("failed", 0)),
            "canceled": (run.canceled_jobs, jobs.get("canceled", 0)),
        }
        told += [f"run {run.id}: {name} says {says}, is {are}" for name, (says, are) in counted.items() if says != are]
        if left := {state: jobs[state] for state in UNFINISHED_JOBS if state in jobs}:
            told.append(f"run {run.id} is {run.status}, and has unfinished jobs: {left}")
        times = (ended[run.id], told_of[f"run:{run.id}"], completed[run.id])
        if run.status == RunState.COMPLETED and times != (1, 1, 1):
            told.append(f"run {run.id}: ended, told of and completed {times} times, not once each")
    depth = outbox.depth(tx)
    if depth.pending or depth.dead:
        told.append(f"the outbox has {depth.pending} pending and {depth.dead} dead events")
    return told


def _states(tx: Transaction, run_id: int) -> dict[str, int]:
    counted = select(page_jobs.c.status, func.count()).where(page_jobs.c.run_id == run_id).group_by(page_jobs.c.status)
    return {row[0]: row[1] for row in tx.execute(counted)}
