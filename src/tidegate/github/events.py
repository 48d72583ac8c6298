"""What a user did lately: 300 events at most, none older than 30 days, and some of them hours late.

An event may show up behind ones that we have seen. So reading goes back to six hours before the last run, and not to
the last event that it saw. Old events leave the list without being gone, so it is never called complete.
"""

from datetime import timedelta

import msgspec

from tidegate.collect.source import Cursor, JobSpec, Reading, Task
from tidegate.github import items, kinds
from tidegate.github.requests import PER_PAGE, Call
from tidegate.github.states import Wishes
from tidegate.upstream import Answer

LATEST = timedelta(hours=6)


class EventState(Wishes, frozen=True, kw_only=True, omit_defaults=True):
    """Where we are in the timeline."""

    login: str
    path: str | None = None
    number: int = 1
    known: str | None = None
    complete_until: str | None = None
    """What is older had shown up when the first page was read."""
    etag: str | None = None
    reader: str | None = None


def ask(task: Task) -> Call:
    """The call for a page."""
    state = EventState.of(task)
    if state.path is not None:
        return Call(path=state.path)
    etag = None if state.full else task.etag
    return Call(path=f"/users/{state.login}/events?per_page={PER_PAGE}", etag=etag)


def read(task: Task, answer: Answer, following: str | None) -> Reading:
    """A page of events."""
    found, documents = items.events(task, kinds.DOCUMENTS[task.spec.kind], items.raw_list(answer))
    state = _begun(task, answer)
    is_known = bool(found) and state.known is not None and found[-1].created_at < state.known
    if following is not None and found and not is_known:
        return Reading(documents=documents, follow_ups=[_page(task, state, following)])
    return Reading(documents=documents, cursor=_cursor(state))


def unchanged(_task: Task) -> Reading:
    """304: nothing happened."""
    return Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """422: the timeline ends here, whatever the link said."""
    state = EventState.of(task)
    return Reading(cursor=_cursor(state)) if answer.status == 422 and state.path is not None else None


def _begun(task: Task, answer: Answer) -> EventState:
    state = EventState.of(task)
    if state.path is not None:
        return state
    at = (answer.date or answer.received_at) - LATEST
    return msgspec.structs.replace(
        state,
        known=task.cursor.timestamp if task.cursor and not state.full else None,
        complete_until=at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        etag=answer.headers.get("ETag"),
        reader=task.credential,
    )


def _cursor(state: EventState) -> Cursor:
    return Cursor(timestamp=state.complete_until, etag=state.etag, credential=state.reader)


def _page(task: Task, state: EventState, path: str) -> JobSpec:
    number = state.number + 1
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"page {number}",
        params=msgspec.structs.replace(state, path=path, number=number).params,
        affinity=task.credential,
    )
