"""The recent events of a user: at most 300, none older than 30 days, and some of them hours late.

An event may appear after newer ones. So reading goes back to six hours before the last run, and not to the last event
that it saw. Old events leave the list without being deleted, so the list never counts as complete.
"""

from datetime import timedelta

import msgspec

from tidegate.engine.source import Cursor, JobSpec, Reading, Task
from tidegate.engine.upstream import Answer
from tidegate.systems.github import items, kinds
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import RunOptions, account_replaced

LATEST = timedelta(hours=6)


class TimelineState(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading the timeline."""

    login: str
    path: str | None = None
    number: int = 1
    known: str | None = None
    complete_until: str | None = None
    """All events older than this were in the list when the first page was read."""
    actor: int | None = None
    """The number of the account; None if unknown."""
    etag: str | None = None
    reader: str | None = None


def ask(task: Task) -> GithubCall:
    """Build the call for a page."""
    state = TimelineState.of(task)
    if state.path is not None:
        return GithubCall(path=state.path)
    etag = None if state.full else task.etag
    return GithubCall(path=f"/users/{state.login}/events?per_page={PER_PAGE}", etag=etag)


def read(task: Task, answer: Answer, following: str | None) -> Reading:
    """Read a page of events."""
    page = items.events(task, kinds.DOCUMENTS[task.spec.kind], answer)
    state, found = _begun(task, answer), page.read
    actor = next((each.actor.id for each in found if each.actor and each.actor.id is not None), None)
    # The login belongs to another account now; its events must not be mixed with those of the former one.
    if actor is not None and state.actor not in (None, actor):
        return account_replaced(state.login, str(state.actor), actor)
    state = msgspec.structs.replace(state, actor=actor or state.actor)
    is_known = bool(found) and state.known is not None and found[-1].created_at < state.known
    if following is not None and not page.is_empty and not is_known:
        reading = Reading(follow_ups=[_page(task, state, following)])
    else:
        reading = Reading(cursor=_cursor(state))
    return msgspec.structs.replace(reading, documents=page.documents, skipped=page.skipped)


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """Handle a 304: there are no new events."""
    return Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 422: the timeline ends here, despite the link to a next page."""
    state = TimelineState.of(task)
    return Reading(cursor=_cursor(state)) if answer.status == 422 and state.path is not None else None


def _begun(task: Task, answer: Answer) -> TimelineState:
    state = TimelineState.of(task)
    if state.path is not None:
        return state
    # By the upstream's clock, like the times of the events.
    at = (answer.date or answer.received_at) - LATEST
    left = Cursor() if state.full or task.cursor is None else task.cursor
    return msgspec.structs.replace(
        state,
        known=left.timestamp,
        actor=int(left.cursor) if left.cursor else None,
        complete_until=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        etag=answer.headers.get("ETag"),
        reader=task.credential,
    )


def _cursor(state: TimelineState) -> Cursor:
    known = None if state.actor is None else str(state.actor)
    return Cursor(cursor=known, timestamp=state.complete_until, etag=state.etag, credential=state.reader)


def _page(task: Task, state: TimelineState, path: str) -> JobSpec:
    number = state.number + 1
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"page {number}",
        params=msgspec.structs.replace(state, path=path, number=number).params,
        affinity=task.credential,
        owner=task.spec.owner,
    )
