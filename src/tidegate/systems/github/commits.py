"""Commits of the default branch, from its head down to the head of the last run.

Dates do not show what is new, because a branch of old commits may be merged today; the graph does. All ancestors of the
old head are known, all other commits are new. Reading ends when every parent of a new commit was seen. If the old head
does not occur, history was rewritten: then all commits were read, and stored commits that are missing are gone.
"""

from collections.abc import Sequence

import msgspec

from tidegate.engine.items import Items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Listing
from tidegate.systems.github import details, items, kinds
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import RepositoryScope, repository_transferred

_EMPTY = "empty"
"""Stored instead of a head if the repository had no commit."""


class CommitState(RepositoryScope, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading the history."""

    head: str | None = None
    """Pages are counted from this commit, so that a push does not move them."""
    is_loose: bool = False
    """A commit of the first page could not be read. It may be the head itself, so pages are not counted from `head`."""
    number: int = 1
    etag: str | None = None
    reader: str | None = None
    has_met: bool = False
    """Whether the old head was seen."""
    awaited_known: tuple[str, ...] = ()
    """Known parents that were not seen yet."""
    awaited_new: tuple[str, ...] = ()
    """Parents of new commits that were not seen yet."""
    old_head: str | None = None
    reach: str | None = None
    """Commits older than this were omitted by the runs that led to the old head; None: none were."""


def ask(task: Task) -> GithubCall:
    """Build the call for a page."""
    state = CommitState.of(task)
    since = f"since={state.since}&" if state.since else ""
    path = f"{state.repository.path}/commits?{since}per_page={PER_PAGE}"
    if state.number > 1:
        # Later pages start at the same commit as the first one, so a push in between moves nothing.
        head = "" if state.head is None or state.is_loose else f"&sha={state.head}"
        return GithubCall(path=f"{path}{head}&page={state.number}")
    return GithubCall(path=path, etag=task.etag if _left_by(task, state) is not None else None)


def is_known_empty(task: Task) -> bool:
    """Whether the last run found no commit, and nothing was pushed since, so that no call is needed."""
    cursor, state = task.cursor, CommitState.of(task)
    if cursor is None or state.full or state.repository.pushed_at is None:
        return False
    return cursor.cursor == _EMPTY and cursor.timestamp == state.repository.pushed_at


def read(task: Task, answer: Answer, following: str | None) -> Reading:
    """Read a page of commits."""
    state, kind = CommitState.of(task), kinds.DOCUMENTS[task.spec.kind]
    page = items.commits(task, kind, answer, state.repository.id)
    if (owner := items.new_owner(page.read, state.repository.full_name)) is not None:
        return repository_transferred(owner)
    if state.number == 1:
        state = _begun(task, state, answer, page)
    # `_new` needs the state before the page: a commit of the page may be the parent of another one on it.
    before, state = state, _followed(state, page.read)
    jobs = details.jobs_of(task, state.repository, state.details, _new(before, page.read) if state.details else [])
    # Enough is read when the old head was seen and every parent of a new commit, too: a merge can bring old commits
    # that follow the old head.
    if following is not None and not (state.has_met and not state.awaited_new):
        return Reading(documents=page.documents, skipped=page.skipped, follow_ups=[*jobs, _page(task, state)])
    # Only a list that was read to its end, without a limit of time, shows which commits are gone.
    whole = following is None and state.since is None
    return Reading(
        documents=page.documents,
        skipped=page.skipped,
        follow_ups=jobs,
        completed=[Listing(kind, task.spec.resource, task.run_id)] if whole else [],
        cursor=Cursor(cursor=state.head, timestamp=_reach(state), etag=state.etag, credential=state.reader),
    )


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """Handle a 304: the head is the same."""
    return Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 409: the repository is empty, and all stored commits are gone."""
    if answer.status != 409:
        return None
    return Reading(
        completed=[Listing(kinds.DOCUMENTS[task.spec.kind], task.spec.resource, task.run_id)],
        cursor=Cursor(cursor=_EMPTY, timestamp=CommitState.of(task).repository.pushed_at),
    )


def _begun(task: Task, state: CommitState, answer: Answer, page: Items[items.Commit]) -> CommitState:
    left = _left_by(task, state) or Cursor()
    was_empty = left.cursor == _EMPTY
    return msgspec.structs.replace(
        state,
        head=page.read[0].sha if page.read else None,
        is_loose=bool(page.skipped),
        old_head=None if was_empty else left.cursor,
        reach=None if was_empty else left.timestamp,
        etag=answer.headers.get("ETag"),
        reader=task.credential,
    )


def _left_by(task: Task, state: CommitState) -> Cursor | None:
    """The cursor of the last run, unless that run omitted commits that this run includes."""
    cursor = task.cursor
    if cursor is None or state.full:
        return None
    reach = None if cursor.cursor == _EMPTY else cursor.timestamp
    return cursor if reach is None or (state.since is not None and state.since >= reach) else None


def _reach(state: CommitState) -> str | None:
    """The oldest time covered: as before, or, if the old head was not seen, that of this run."""
    return state.reach if state.has_met else state.since


def _followed(state: CommitState, found: Sequence[items.Commit]) -> CommitState:
    """The state after these commits, with the parents still to be seen; a child comes before its parents."""
    known, new, has_met = set(state.awaited_known), set(state.awaited_new), state.has_met
    for commit in found:
        # Ancestors of the old head are known, even if they come on later pages.
        is_known = commit.sha == state.old_head or commit.sha in known
        has_met = has_met or commit.sha == state.old_head
        known.discard(commit.sha)
        new.discard(commit.sha)
        # The parents take the place of the commit among those that are still awaited.
        (known if is_known else new).update(commit.parent_shas)
    return msgspec.structs.replace(
        state, has_met=has_met, awaited_known=tuple(sorted(known)), awaited_new=tuple(sorted(new - known))
    )


def _new(state: CommitState, found: Sequence[items.Commit]) -> list[dict[str, str]]:
    """The commits that are not in the history of the old head; `state` is the state before these commits."""
    known, new = set(state.awaited_known) | {state.old_head}, list[dict[str, str]]()
    for commit in found:
        if commit.sha in known:
            known.update(commit.parent_shas)
        else:
            new.append({"sha": commit.sha})
    return new


def _page(task: Task, state: CommitState) -> JobSpec:
    number = state.number + 1
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"page {number}",
        params=msgspec.structs.replace(state, number=number).params,
        affinity=task.credential,
        owner=task.spec.owner,
    )
