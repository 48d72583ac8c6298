"""The repositories of a user, of an organization or of a search, and the jobs of each.

GitHub answers a request for an unchanged page without its items and without the link to the next page. Therefore the
cursor of the list stores the items, the link and the ETag of each page.

A search has no ETags, is limited by the quota `search`, and shows 1,000 repositories at most. A repository that it no
longer finds still exists, so nothing is marked as gone.
"""

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.engine.items import decode_with_items, read_items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document, Listing
from tidegate.systems.github import kinds
from tidegate.systems.github.limits import explain, left_out
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import (
    ListedRepository,
    RunOptions,
    Selection,
    ShownRepository,
    account_replaced,
    format_upstream_time,
    repository_jobs,
)

INSIDE = tuple(kind.document for kind in kinds.REGISTRY.values() if kind.is_in_repository and kind.document is not None)
"""The kinds of documents that belong to a repository."""
_CAN_BE_DISABLED = tuple(
    (kind, declared.document)
    for kind, declared in kinds.REGISTRY.items()
    if declared.enabled_by is not None and declared.document is not None
)
"""The kinds that can be disabled in a repository, with their documents."""


_MOST_FOUND = 1000
"""Maximum number of results that GitHub shows for a search."""


class ReadPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page as the last run read it."""

    etag: str | None = None
    reader: str | None = None
    """The credential that received the ETag."""
    following: str | None = None
    """The link to the next page."""
    repositories: tuple[ListedRepository, ...] = ()


class RepositoriesCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of the cursor."""

    pages: tuple[ReadPage, ...]
    owner: int | None = None
    """The number of the account that owns the repositories."""
    unseen: tuple[tuple[int, str], ...] = ()
    """Repositories of earlier runs that may be among the unreadable items."""


class _Found(msgspec.Struct):
    items: msgspec.Raw
    total_count: int = 0
    incomplete_results: bool = False


class RepositoriesState(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading the list."""

    login: str = ""
    """The account that owns the repositories; empty for a search."""
    is_organization: bool = False
    query: str | None = None
    """The query of a search."""
    selection: Selection = Selection()
    path: str | None = None
    read: tuple[ReadPage, ...] = ()
    before: tuple[ReadPage, ...] = ()
    """The pages of the last run, from this page on."""
    skipped: bool = False
    """Whether a page was unchanged, so that its repositories were not seen in this run."""
    known: tuple[tuple[int, str], ...] = ()
    """Repositories of the last run that were not seen yet: their numbers and resources."""
    is_second: bool = False
    """Whether this is the second pass, which skips no page."""
    owner: int | None = None
    """The number of the account; None if unknown."""
    has_gaps: bool = False
    """Whether an item could not be read."""
    include: tuple[str, ...] | None = None
    """The kinds to collect of each repository; None: the default of the source."""

    @property
    def first_path(self) -> str:
        """The path of the first page, the same in every run. Newest first: a new repository changes this page."""
        if self.query is not None:
            return f"/search/repositories?q={quote(self.query)}&per_page={PER_PAGE}"
        of = "orgs" if self.is_organization else "users"
        return f"/{of}/{self.login}/repos?sort=created&direction=desc&per_page={PER_PAGE}"


class Repositories:
    """Reads the list. Runs without the option `include` collect the kinds of `include` from each repository."""

    def __init__(self, include: frozenset[str]) -> None:
        self._include = include

    def ask(self, task: Task) -> GithubCall:
        """Build the call for a page."""
        state = _state_of(task)
        path = state.path or state.first_path
        before = state.before[0] if state.before else ReadPage()
        return GithubCall(path=path, etag=before.etag if before.reader == task.credential else None)

    def read(self, task: Task, answer: Answer, following: str | None) -> Reading:
        """Read a page that is new or changed; `following` is the link to the next page."""
        state = _state_of(task)
        found, notes = (answer.body, left_out(answer)) if state.query is None else _found(state, answer)
        listed = read_items(found, ShownRepository, partial(_document, task, state.login))
        skipped = [*listed.skipped, *notes]
        if state.query is not None:
            onwards = [] if following is None else [_next(task, _with_page(state, ReadPage()), following)]
            jobs = self._jobs(task, state, [each.repository for each in listed.read], answer)
            return Reading(documents=listed.documents, skipped=skipped, follow_ups=[*jobs, *onwards])
        owner = next((each.owner.id for each in listed.read if each.owner and each.owner.id is not None), None)
        if owner is not None and state.owner not in (None, owner):
            return account_replaced(state.login, str(state.owner), owner)
        state = msgspec.structs.replace(state, owner=owner or state.owner, has_gaps=state.has_gaps or bool(skipped))
        repositories = tuple(each.repository for each in listed.read)
        page = ReadPage(answer.headers.get("ETag"), task.credential, following, repositories)
        reading = self._go_on(task, state, page, answer)
        return msgspec.structs.replace(reading, documents=listed.documents, skipped=skipped)

    def unchanged(self, task: Task, answer: Answer) -> Reading:
        """Handle a 304: the page is unchanged."""
        state = _state_of(task)
        return self._go_on(task, msgspec.structs.replace(state, skipped=True), state.before[0], answer)

    def refused(self, task: Task, answer: Answer) -> Reading | None:
        """Handle a 422: the query is invalid, or GitHub shows no further results."""
        state = RepositoriesState.of(task)
        if answer.status == 422 and state.query is not None:
            return Reading() if state.path is not None else Reading(verdict=Verdict.GONE, reason=explain(answer))
        return None

    def _jobs(
        self, task: Task, state: RepositoriesState, found: Sequence[ListedRepository], answer: Answer
    ) -> list[JobSpec]:
        include = self._include if state.include is None else frozenset(state.include)
        at = format_upstream_time(answer.date or answer.received_at)
        selected = [one for one in found if state.selection.includes(one)]
        # Results of a search belong to the accounts of their repositories, which share cursors with other runs.
        owners = {one.full_name: task.user_id if state.login else one.owner for one in selected}
        return [
            job
            for one in selected
            for job in repository_jobs(one, include, state, owner=owners[one.full_name], listed_at=at)
        ]

    def _go_on(self, task: Task, state: RepositoriesState, page: ReadPage, answer: Answer) -> Reading:
        """Continue with the next page, with another pass if repositories may be missing, or end the list."""
        jobs = self._jobs(task, state, page.repositories, answer)
        state = _with_page(state, page)
        if page.following is not None:
            return Reading(
                follow_ups=[*jobs, _next(task, state, page.following)], completed=_disabled_listings(task, page)
            )
        # A repository is missing, and this pass may have overlooked it: read all pages again before it counts
        # as gone.
        if _may_have_missed_items(state) and _missing(state):
            return Reading(
                follow_ups=[*jobs, _from_the_beginning(task, state)], completed=_disabled_listings(task, page)
            )
        whole = (
            []
            if state.skipped
            else [Listing(kinds.REPOSITORY, task.spec.resource, task.run_id), *_listings_of_missing(task, state)]
        )
        first = state.read[0]
        return Reading(
            follow_ups=jobs,
            cursor=Cursor(
                cursor=msgspec.json.encode(_cursor_of(state)).decode(), etag=first.etag, credential=first.reader
            ),
            completed=[*_disabled_listings(task, page), *whole],
        )


def _with_page(state: RepositoriesState, page: ReadPage) -> RepositoriesState:
    return msgspec.structs.replace(state, read=(*state.read, page), before=state.before[1:])


def _found(state: RepositoriesState, answer: Answer) -> tuple[bytes, list[str]]:
    """The items of a page of results, and reasons why the search may be incomplete."""
    found, notes = decode_with_items(answer.body, _Found, "items"), left_out(answer)
    if found.incomplete_results:
        notes.append("the search timed out at GitHub; its result is incomplete")
    if found.total_count > _MOST_FOUND and state.path is None:
        notes.append(f"the search finds {found.total_count} repositories; GitHub shows only the first {_MOST_FOUND}")
    return bytes(found.items), notes


def _disabled_listings(task: Task, page: ReadPage) -> list[Listing]:
    """The lists that are empty because they are disabled in their repository."""
    return [
        Listing(document, found.resource, task.run_id)
        for found in page.repositories
        for kind, document in _CAN_BE_DISABLED
        if not found.has_list(kind)
    ]


def _may_have_missed_items(state: RepositoriesState) -> bool:
    """Whether this pass may have missed an existing repository.

    A deletion while pages are read moves the first item of the next page to a page that was read already.
    """
    # A list of one page hides nothing, unless that page was unchanged and so not seen.
    return state.skipped or (len(state.read) > 1 and not state.is_second)


def _missing(state: RepositoriesState) -> list[tuple[int, str]]:
    """The repositories that the last run knew and this run has not seen."""
    # By number: a renamed repository is not a missing one.
    seen = {found.id for page in state.read for found in page.repositories}
    return [(number, resource) for number, resource in state.known if number not in seen]


def _listings_of_missing(task: Task, state: RepositoriesState) -> list[Listing]:
    """The listings of repositories that are gone, so that their documents are marked as gone too."""
    return [Listing(kind, resource, task.run_id) for _, resource in _missing(state) for kind in INSIDE]


def _state_of(task: Task) -> RepositoriesState:
    state = RepositoriesState.of(task)
    if state.path is not None or task.cursor is None or task.cursor.cursor is None:
        return state
    kept = msgspec.json.decode(task.cursor.cursor, type=RepositoriesCursor)
    known = tuple((found.id, found.resource) for page in kept.pages for found in page.repositories) + kept.unseen
    if state.full:
        return msgspec.structs.replace(state, known=known)
    return msgspec.structs.replace(state, before=kept.pages, known=known, owner=kept.owner)


def _cursor_of(state: RepositoriesState) -> RepositoriesCursor:
    return RepositoriesCursor(state.read, owner=state.owner, unseen=tuple(_missing(state)) if state.has_gaps else ())


def _document(task: Task, login: str, listed: ShownRepository, raw: msgspec.Raw) -> Document:
    """Build the document of a repository; raises `InvalidArgument` if it does not belong to the account.

    Results of a search belong to many accounts; each document belongs to the account of its repository.
    """
    if login and listed.repository.owner != login:
        raise InvalidArgument("full_name", listed.full_name, f"is not a repository of {login}")
    owner = task.user_id if login else listed.repository.owner
    return Document.of(
        kinds.REPOSITORY,
        str(listed.id),
        owner=owner,
        resource=task.spec.resource,
        body=raw,
        version=listed.updated_at,
        sweep=task.run_id,
    )


def _next(task: Task, state: RepositoriesState, path: str) -> JobSpec:
    return _job(task, f"page {len(state.read) + 1}", msgspec.structs.replace(state, path=path))


def _from_the_beginning(task: Task, state: RepositoriesState) -> JobSpec:
    """Start again, because a repository is missing: all must be seen, twice if items can move between pages."""
    again = msgspec.structs.replace(
        state,
        path=None,
        read=(),
        before=(),
        skipped=False,
        known=tuple(_missing(state)),
        is_second=True,
        owner=None,
        has_gaps=False,
    )
    return _job(task, "page 1", again)


def _job(task: Task, page: str, state: RepositoriesState) -> JobSpec:
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"again {page}" if state.is_second else page,
        params=state.params,
        bucket=task.spec.bucket,
        affinity=task.credential,
        owner=task.spec.owner,
    )
