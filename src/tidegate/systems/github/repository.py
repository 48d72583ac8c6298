"""One repository that was requested by name: its document, and the jobs that collect its contents.

A repository that was renamed or transferred is found by a redirect and collected under its new name. The number of a
repository is permanent: a different number under the same name is a different repository.
"""

import msgspec

from tidegate.engine.source import Cursor, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document
from tidegate.systems.github import kinds
from tidegate.systems.github.limits import explain
from tidegate.systems.github.requests import GithubCall
from tidegate.systems.github.states import (
    ListedRepository,
    RunOptions,
    ShownRepository,
    format_upstream_time,
    repository_jobs,
)


class RepositoryState(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The repository, and the kinds to collect of it."""

    full_name: str
    include: tuple[str, ...] = ()


def ask(task: Task) -> GithubCall:
    """Build the call, which is free if the repository is unchanged."""
    state = RepositoryState.of(task)
    return GithubCall(path=f"/repos/{state.full_name}", etag=None if state.full else task.etag)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Read the repository, and create the jobs that collect its contents."""
    state, shown = RepositoryState.of(task), msgspec.json.decode(answer.body, type=ShownRepository)
    found = shown.repository
    former = _kept(task)
    # A name can be taken by another repository after a deletion. Its documents must not be mixed with the former ones.
    if former is not None and former.id != found.id and not state.full:
        reason = (
            f"{state.full_name} is a different repository now: its number is {found.id}, and was {former.id}. Nothing "
            "of it was stored; a full run (--full) accepts the new repository"
        )
        return Reading(verdict=Verdict.GONE, reason=reason)
    document = Document.of(
        kinds.REPOSITORY,
        str(found.id),
        owner=found.owner,
        resource=task.spec.resource,
        body=msgspec.Raw(answer.body),
        version=shown.updated_at,
        sweep=task.run_id,
    )
    kept = msgspec.json.encode(found).decode()
    reading = _with_jobs(state, found, answer)
    return msgspec.structs.replace(
        reading,
        documents=[document],
        cursor=Cursor(cursor=kept, etag=answer.headers.get("ETag"), credential=task.credential),
    )


def unchanged(task: Task, answer: Answer) -> Reading:
    """Handle a 304: the repository itself is unchanged; its contents may have changed."""
    found = _kept(task)
    assert found is not None, "only a job with a cursor sends an ETag"
    return _with_jobs(RepositoryState.of(task), found, answer)


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 404: the repository does not exist, or the token has no access to it."""
    if answer.status != 404:
        return None
    name = RepositoryState.of(task).full_name
    reason = f"{explain(answer)}: there is no repository {name!r}, or the token has no access to it"
    return Reading(verdict=Verdict.GONE, reason=reason)


def _kept(task: Task) -> ListedRepository | None:
    if task.cursor is None or task.cursor.cursor is None:
        return None
    return msgspec.json.decode(task.cursor.cursor, type=ListedRepository)


def _with_jobs(state: RepositoryState, found: ListedRepository, answer: Answer) -> Reading:
    at = format_upstream_time(answer.date or answer.received_at)
    jobs = repository_jobs(found, frozenset(state.include), state, owner=found.owner, listed_at=at)
    return Reading(follow_ups=jobs)
