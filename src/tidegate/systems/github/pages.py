"""Lists without an order by change: releases, tags, labels, workflow runs, and the like; see `kinds`.

`PAGES`: the cursor has an ETag for every page, so an unchanged list is free, and a changed list costs one call per
changed page. A list of one page shows what is gone. In a longer list, only a full run detects deletions. A deletion
moves items between numbered pages, so a full run requests every page a second time, which is free if nothing moved; if
something moved, nothing is marked as gone.

`NEWEST`: items are appended and have rising numbers. Pages are read from the newest item down to the newest that the
last run knew, or to the oldest that was not settled then.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.engine.items import Items, read_items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document
from tidegate.systems.github import details, items, kinds
from tidegate.systems.github.kinds import Kind, ListOrder
from tidegate.systems.github.limits import explain, left_out
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import ListedRepository, RunOptions

_MOST_MARKS = 400
"""Number of pages with ETags in a cursor, which has 64 KB at most on MySQL, and in the parameters of a job."""
_MOST_UNSETTLED = 1_000
_DIGEST = 8
"""Characters of the digest of an item."""
_RESTRICTED = "push access"


class PageMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """One page in the state in which the last run read it."""

    etag: str
    following: str | None = None
    """Path of the next page."""
    items: str = ""
    """Digests of its items, if a later run needs to know which of them changed."""


class ListCursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The contents of a list's cursor."""

    pages: tuple[PageMark, ...] = ()
    known: int | None = None
    """The next run reads down to this number."""
    newest: int | None = None
    """The newest item and all unsettled items, if details of them are collected."""
    unsettled: tuple[int, ...] = ()


class PagedListState(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading a list."""

    repository: ListedRepository | None = None
    organization: str | None = None
    path: str | None = None
    """Path of this page; None: the first one."""
    number: int = 1
    lap: int = 1
    read: tuple[PageMark, ...] = ()
    before: tuple[PageMark, ...] = ()
    """Pages of the last run, or of the previous lap, from this page on."""
    is_partial: bool = False
    """Whether a page was unchanged, so that its items were not seen."""
    is_known: bool = False
    """Whether the last run knew all further items."""
    newest: int | None = None
    unsettled: int | None = None
    """The oldest item that may still change."""
    known: int | None = None
    details: tuple[str, ...] = ()
    """The kinds of details that the run collects, see `details`."""
    last: int | None = None
    """The newest item of the last run, and its unsettled items, if details are collected."""
    were_unsettled: tuple[int, ...] = ()
    all_unsettled: tuple[int, ...] = ()
    """The unsettled items of this run."""

    def first_path(self, kind: str) -> str:
        """The path of the first page, which is the same in every run."""
        base = f"/orgs/{self.organization}" if self.repository is None else self.repository.path
        declared = kinds.REGISTRY[kind]
        return f"{base}/{declared.path}" if declared.is_single else f"{base}/{declared.query_prefix}per_page={PER_PAGE}"

    @property
    def scope(self) -> str:
        """Prefix for ids that are unique only within a repository or an organization."""
        return self.organization or "" if self.repository is None else str(self.repository.id)


def ask(task: Task) -> GithubCall:
    """Build the call for a page, with its last ETag."""
    state, kind = _begun(task), task.spec.kind
    etag = state.before[0].etag or None if state.before else None
    return GithubCall(path=state.path or state.first_path(kind), etag=etag, media_type=kinds.REGISTRY[kind].media_type)


def read(task: Task, answer: Answer, following: str | None) -> Reading:
    """Read a page that is new or changed."""
    state, declared = _begun(task), kinds.REGISTRY[task.spec.kind]
    page = _items(task, state, declared, answer)
    skipped = [*page.skipped, *left_out(answer)]
    if state.lap > 1:  # something moved since the first lap: an item that was not seen may still exist
        return Reading(documents=page.documents, skipped=skipped, cursor=_cursor(task, state))
    changed, digests = _changed(task, state, declared, page.read)
    mark = PageMark(answer.headers.get("ETag") or "", following, digests)
    reading = _go_on(task, _note_numbers(task, state, declared, page.read), mark)
    jobs = details.jobs_of(task, state.repository, state.details, changed)
    return msgspec.structs.replace(
        reading, documents=page.documents, skipped=skipped, follow_ups=[*jobs, *reading.follow_ups]
    )


def unchanged(task: Task, _answer: Answer) -> Reading:
    """Handle a 304: the page is unchanged."""
    state, declared = _begun(task), kinds.REGISTRY[task.spec.kind]
    # Nothing was appended, and the cursor of the last run stays valid.
    if declared.order is ListOrder.NEWEST and state.number == 1 and state.lap == 1:
        return Reading()
    is_partial = state.is_partial or state.lap == 1
    return _go_on(task, msgspec.structs.replace(state, is_partial=is_partial), state.before[0])


def refused(task: Task, answer: Answer) -> Reading | None:
    """Treat lists that are disabled, empty or too large as empty, and lists for collaborators as unavailable."""
    state, declared = PagedListState.of(task), kinds.REGISTRY[task.spec.kind]
    # On a later page or lap, the repository has shown that it is not empty.
    if answer.status == 204 and declared.is_computed_from_commits and (state.number, state.lap) == (1, 1):
        return read(task, msgspec.structs.replace(answer, body=b"[]"), None)
    words = answer.body.decode(errors="replace").lower()
    if answer.status in (409, 410):
        return Reading(completed=[task.listing(kinds.DOCUMENTS[task.spec.kind])])
    if answer.status == 403 and _RESTRICTED in words:
        return Reading(verdict=Verdict.UNAVAILABLE, reason=explain(answer))
    if answer.status == 422 and declared.is_single:
        return Reading(verdict=Verdict.UNAVAILABLE, reason=explain(answer))
    return None


def of_organization(kind: str, name: str, scope: RunOptions) -> JobSpec:
    """The job for the first page of a list of an organization."""
    state = PagedListState(organization=name, full=scope.full, since=scope.since)
    return JobSpec(kind=kind, resource=f"org:{name}", params=state.params, owner=name)


def _begun(task: Task) -> PagedListState:
    state = PagedListState.of(task)
    left = task.cursor
    # Later pages and laps carry their state in the job.
    if state.path is not None or state.lap > 1 or left is None or left.cursor is None or state.full:
        return state
    marks = msgspec.json.decode(left.cursor, type=ListCursor)
    # ETags of another credential do not match. What the last run knew is still valid.
    pages = marks.pages if left.credential == task.credential else ()
    return msgspec.structs.replace(
        state, before=pages, known=marks.known, last=marks.newest, were_unsettled=marks.unsettled
    )


def _items(task: Task, state: PagedListState, declared: Kind, answer: Answer) -> Items[dict[str, Any]]:
    kind = kinds.DOCUMENTS[task.spec.kind]
    if declared.is_single:
        weeks = msgspec.json.decode(answer.body)
        document = items.document(task, kind, state.scope, {"weeks": weeks})
        return Items(read=[], documents=[document], skipped=[])
    ghosts = Counter[str]()  # items of deleted accounts on this page

    def to_document(item: dict[str, Any], raw: msgspec.Raw) -> Document:
        return _document(task, state, _identity(declared, item, ghosts), item, raw)

    return read_items(items.listed(answer, declared.items_key), dict[str, Any], to_document)


def _document(task: Task, state: PagedListState, named: str, item: dict[str, Any], raw: msgspec.Raw) -> Document:
    version = item.get("updated_at")
    name = named if kinds.REGISTRY[task.spec.kind].is_unique else f"{state.scope}:{named}"
    return items.document(
        task,
        kinds.DOCUMENTS[task.spec.kind],
        name,
        raw,
        version=version if isinstance(version, str) else None,
    )


def _identity(declared: Kind, item: dict[str, Any], ghosts: Counter[str]) -> str:
    """The id of an item. Items of deleted accounts at the same time are numbered in the order of their page."""
    found: Any = item
    for name in declared.identity:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None and declared.identity_of_ghosts is not None:
        found = f"ghost:{item.get(declared.identity_of_ghosts)}"
        ghosts[found] += 1
        found = found if ghosts[found] == 1 else f"{found}:{ghosts[found]}"
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise InvalidArgument(".".join(declared.identity), found, "must be a number or a text")
    return items.plain_id(str(found))


def _changed(
    task: Task, state: PagedListState, declared: Kind, found: Sequence[dict[str, Any]]
) -> tuple[Sequence[dict[str, Any]], str]:
    """The items of a page that are new or changed since the last run, and the digests of all items.

    If no details are collected, no digests are stored.
    """
    if not details.are_wanted(task.spec.kind, state.details):
        return [], ""
    if declared.order is ListOrder.NEWEST:
        last, unsettled = state.last, set(state.were_unsettled)
        return [item for item in found if last is None or item.get("id", 0) > last or item.get("id") in unsettled], ""
    digests = [blake2b(msgspec.json.encode(item), digest_size=_DIGEST // 2).hexdigest() for item in found]
    # Compared with all pages of the last run from here on: a deletion moves items from a later page to this one.
    before = "".join(mark.items for mark in state.before)
    old = {before[start : start + _DIGEST] for start in range(0, len(before), _DIGEST)}
    return [item for item, digest in zip(found, digests, strict=True) if digest not in old], "".join(digests)


def _note_numbers(task: Task, state: PagedListState, declared: Kind, found: Sequence[dict[str, Any]]) -> PagedListState:
    """Update the newest number and the numbers of unsettled items; only for lists in the order of creation."""
    if declared.order is not ListOrder.NEWEST:
        return state
    numbers = [number for item in found if isinstance(number := item.get("id"), int)]
    still = [
        number
        for item in found
        if declared.settled is not None
        and item.get(declared.settled[0]) != declared.settled[1]
        and isinstance(number := item.get("id"), int)
    ]
    return msgspec.structs.replace(
        state,
        newest=max([*numbers, *_some(state.newest)], default=None),
        all_unsettled=(*state.all_unsettled, *still)[-_MOST_UNSETTLED:]
        if details.are_wanted(task.spec.kind, state.details)
        else (),
        unsettled=min([*still, *_some(state.unsettled)], default=None),
        # Pages go down from the newest number, so one that reaches a known number is the last to read.
        is_known=state.known is not None and min(numbers, default=0) <= state.known,
    )


def _go_on(task: Task, state: PagedListState, mark: PageMark) -> Reading:
    # Each job has this list in its parameters: without a limit, n pages would need n * n marks.
    state = msgspec.structs.replace(state, read=(*state.read, mark)[:_MOST_MARKS], before=state.before[1:])
    if mark.following is not None and not state.is_known:
        onwards = msgspec.structs.replace(state, path=mark.following, number=state.number + 1)
        return Reading(follow_ups=[_job(task, onwards)])
    is_whole = mark.following is None and not state.is_partial
    # Read it once more with the new ETags. If any page differs, an item may have moved between pages unseen.
    if is_whole and state.full and state.lap == 1 and state.number > 1:
        again = msgspec.structs.replace(state, path=None, number=1, lap=2, before=state.read, read=())
        return Reading(follow_ups=[_job(task, again)])
    # Only then may missing items be marked as gone.
    is_certain = is_whole and (state.number == 1 or state.lap > 1)
    completed = [task.listing(kinds.DOCUMENTS[task.spec.kind])] if is_certain else []
    return Reading(cursor=_cursor(task, state), completed=completed)


def _cursor(task: Task, state: PagedListState) -> Cursor:
    """The cursor with the ETags of all pages; for `NEWEST`, with that of the first page."""
    declared = kinds.REGISTRY[task.spec.kind]
    if declared.order is ListOrder.NEWEST:
        first = (*state.read, *state.before)[0]
        # An item below the first page can change while that page stays the same: then it is read without its ETag.
        is_below = state.unsettled is not None and state.number > 1
        newest = state.newest or state.last
        marks = ListCursor(
            (PageMark("" if is_below else first.etag),),
            known=state.unsettled or state.newest or state.known,
            newest=newest if details.are_wanted(task.spec.kind, state.details) else None,
            unsettled=state.all_unsettled,
        )
    else:
        marks = ListCursor((*state.read, *state.before)[:_MOST_MARKS])
    return Cursor(
        cursor=msgspec.json.encode(marks).decode(), etag=marks.pages[0].etag or None, credential=task.credential
    )


def _job(task: Task, state: PagedListState) -> JobSpec:
    lap = "again " if state.lap > 1 else ""
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"{lap}page {state.number}",
        params=state.params,
        affinity=task.credential,
        owner=task.spec.owner,
    )


def _some(number: int | None) -> list[int]:
    return [] if number is None else [number]
