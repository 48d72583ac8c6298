"""The repositories of a user, and with them the jobs of each.

An unchanged page is answered without its items and without its link, so both are kept beside its ETag: the cursor of
this list is all its pages.
"""

import msgspec

from tidegate.collect.source import Cursor, JobSpec, Reading, Task
from tidegate.documents import Listing
from tidegate.github import items, kinds
from tidegate.github.requests import PER_PAGE, Call
from tidegate.github.states import Repository, Wishes, repository_jobs
from tidegate.upstream import Answer

_INSIDE = tuple(document for kind, document in kinds.DOCUMENTS.items() if kind != kinds.USER_EVENTS)
"""The kinds of documents that a repository holds."""


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page as it was."""

    etag: str | None = None
    reader: str | None = None
    """Who got the ETag."""
    following: str | None = None
    repositories: tuple[Repository, ...] = ()


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the cursor holds."""

    pages: tuple[Page, ...]


class RepositoriesState(Wishes, frozen=True, kw_only=True, omit_defaults=True):
    """Where we are in the list."""

    login: str
    path: str | None = None
    read: tuple[Page, ...] = ()
    before: tuple[Page, ...] = ()
    """The pages of the last run, from here on."""
    skipped: bool = False
    """Some page was unchanged, so that its repositories were not seen in this run."""
    known: tuple[tuple[int, str], ...] = ()
    """The repositories of the last run that were not seen so far: numbers, and under what their items are found."""
    is_second: bool = False
    """Read once more without skipping."""
    include: tuple[str, ...] | None = None
    """What the run collects of each repository; None: what the source does by default."""


class Repositories:
    """Reads the list; `include` are the kinds to collect of each repository, where the run does not say."""

    def __init__(self, include: frozenset[str]) -> None:
        self._include = include

    def ask(self, task: Task) -> Call:
        """The call for a page; the newest repository comes first, so that a new one changes the first page."""
        state = _begun(task)
        path = state.path or f"/users/{state.login}/repos?sort=created&direction=desc&per_page={PER_PAGE}"
        before = state.before[0] if state.before else Page()
        return Call(path=path, etag=before.etag if before.reader == task.credential else None)

    def read(self, task: Task, answer: Answer, following: str | None) -> Reading:
        """A page that is new or different."""
        raw = items.raw_list(answer)
        _, documents = items.numbered(task, kinds.REPOSITORY, raw)
        found = tuple(msgspec.json.decode(each, type=Repository) for each in raw)
        page = Page(answer.headers.get("ETag"), task.credential, following, found)
        return msgspec.structs.replace(self._go_on(task, _begun(task), page), documents=documents)

    def unchanged(self, task: Task) -> Reading:
        """304: the page is as it was."""
        state = _begun(task)
        return self._go_on(task, msgspec.structs.replace(state, skipped=True), state.before[0])

    def refused(self, _task: Task, _answer: Answer) -> Reading | None:
        """Nothing special."""
        return None

    def _go_on(self, task: Task, state: RepositoriesState, page: Page) -> Reading:
        include = self._include if state.include is None else frozenset(state.include)
        jobs = [job for found in page.repositories for job in repository_jobs(found, include, state)]
        state = msgspec.structs.replace(state, read=(*state.read, page), before=state.before[1:])
        if page.following is not None:
            return Reading(follow_ups=[*jobs, _next(task, state, page.following)], completed=_switched_off(task, page))
        if _is_doubtful(state) and _missing(state):
            return Reading(follow_ups=[*jobs, _from_the_beginning(task, state)], completed=_switched_off(task, page))
        whole = (
            [] if state.skipped else [Listing(kinds.REPOSITORY, task.spec.resource, task.run_id), *_left(task, state)]
        )
        first = state.read[0]
        return Reading(
            follow_ups=jobs,
            cursor=Cursor(
                cursor=msgspec.json.encode(Kept(state.read)).decode(), etag=first.etag, credential=first.reader
            ),
            completed=[*_switched_off(task, page), *whole],
        )


def _switched_off(task: Task, page: Page) -> list[Listing]:
    """Issues that cannot be read any more: the list of them is empty."""
    kind = kinds.DOCUMENTS[kinds.REPO_ISSUES]
    return [Listing(kind, found.resource, task.run_id) for found in page.repositories if not found.has_issues]


def _is_doubtful(state: RepositoriesState) -> bool:
    """Whether a repository may be there that this reading has not seen, or only by hearsay.

    One that is deleted while pages are read moves the rest up, and the first of the next page onto the last one.
    """
    return state.skipped or (len(state.read) > 1 and not state.is_second)


def _missing(state: RepositoriesState) -> list[tuple[int, str]]:
    """The repositories that the last run knew, and this one has not seen."""
    seen = {found.id for page in state.read for found in page.repositories}
    return [(number, resource) for number, resource in state.known if number not in seen]


def _left(task: Task, state: RepositoriesState) -> list[Listing]:
    """A repository that is gone takes along whatever is in it."""
    return [Listing(kind, resource, task.run_id) for _, resource in _missing(state) for kind in _INSIDE]


def _begun(task: Task) -> RepositoriesState:
    state = RepositoriesState.of(task)
    if state.path is not None or task.cursor is None or task.cursor.cursor is None:
        return state
    kept = msgspec.json.decode(task.cursor.cursor, type=Kept)
    known = tuple((found.id, found.resource) for page in kept.pages for found in page.repositories)
    return msgspec.structs.replace(state, before=() if state.full else kept.pages, known=known)


def _next(task: Task, state: RepositoriesState, path: str) -> JobSpec:
    return _job(task, f"page {len(state.read) + 1}", msgspec.structs.replace(state, path=path))


def _from_the_beginning(task: Task, state: RepositoriesState) -> JobSpec:
    """A repository has left the list: to tell which are gone, all have to be seen, and twice where pages can move."""
    again = RepositoriesState(
        login=state.login,
        full=state.full,
        since=state.since,
        include=state.include,
        known=tuple(_missing(state)),
        is_second=True,
    )
    return _job(task, "page 1", again)


def _job(task: Task, page: str, state: RepositoriesState) -> JobSpec:
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"again {page}" if state.is_second else page,
        params=state.params,
        affinity=task.credential,
    )
