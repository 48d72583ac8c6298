"""Lists of a repository that are ordered by last change: issues, pull requests, comments.

The first page has the same address in every run, so that one conditional call, which is free, shows whether anything
changed. If so, pages are read down to the time up to which the last run knows the list.

An item that changes while pages are read moves to the front, to a page that was read already. So a list of several
pages is read again from the beginning. One such pass is a *lap*; it is free if nothing changed. Only after a lap of one
page, or a lap without changes, is reading over. If a lap reached the end of the list, stored items that it lacks are
gone. A list that still changes in the last lap (`MOST_LAPS`) is continued by the next run, and nothing of it is gone.

A deletion while pages are read moves the following items up, and can hide an item if pages are numbered: the first item
of the next page moves to the page that was just read. The list of issues has stable cursors, and pull requests cannot
be deleted. Comments can be deleted, so they are not read by page number: after the first page they are read upwards
from the oldest one, each page from the time of the previous page's last item on.
"""

from collections.abc import Callable, Sequence

import msgspec

from tidegate.engine.items import Items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Listing
from tidegate.systems.github import details, items, kinds, reviews
from tidegate.systems.github.items import Item
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import RepositoryScope, repository_transferred

MOST_LAPS = 6
_TOO_MANY = "pagination"


class ListState(RepositoryScope, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading a list within one run; it is passed from job to job. Between runs only the `Cursor` stays."""

    path: str | None = None
    """Path of this page; None: the first one."""
    number: int = 1
    lap: int = 1
    known: str | None = None
    """Items older than this have not changed."""
    newest: str | None = None
    oldest: str | None = None
    """The last change on the page before this one."""
    etag: str | None = None
    reader: str | None = None
    """The credential that received the ETag."""
    is_covered: bool = False
    """Whether all items that existed at the beginning were seen."""
    is_unsteady: bool = False
    """Whether numbered pages were read although items can be deleted: an item may have been missed."""
    upto: str | None = None
    """When reading upwards: the end of the range. See `_upwards`."""
    since_of_page: str | None = None
    reach: str | None = None
    """Items older than this were omitted, by this run or an earlier one; None: none were."""

    def first_path(self, kind: str) -> str:
        """The path of the first page, which is the same in every run."""
        return f"{self._path(kind)}sort=updated&direction=desc&per_page={PER_PAGE}"

    def upward_path(self, kind: str) -> str:
        """The path of a page that is read upwards, from the oldest item or from a time on."""
        since = f"&since={self.since_of_page}" if self.since_of_page else ""
        return f"{self._path(kind)}sort=updated&direction=asc&per_page={PER_PAGE}{since}"

    def _path(self, kind: str) -> str:
        return f"{self.repository.path}/{kinds.REGISTRY[kind].query_prefix}"


class Lists:
    """Reads pages of lists. `include` has the default kinds, for runs without that option."""

    def __init__(self, include: frozenset[str]) -> None:
        self._has_reviews = kinds.REPO_REVIEWS in include

    def ask(self, task: Task) -> GithubCall:
        """Build the call for a page. The first one of a run or lap is conditional: 304 if nothing changed."""
        state = ListState.of(task)
        if state.path is not None:
            return GithubCall(path=state.path)
        # An ETag holds only for the credential that received it, since answers differ by permissions.
        etag = state.etag if state.reader == task.credential else None
        if state.lap == 1:
            etag = task.etag if _left_by(task, state) is not None else None
        return GithubCall(path=state.first_path(task.spec.kind), etag=etag)

    def read(self, task: Task, answer: Answer, following: str | None) -> Reading:
        """Read a page with items."""
        page = items.numbered(task, kinds.DOCUMENTS[task.spec.kind], answer)
        if (owner := items.new_owner(page.read, ListState.of(task).repository.full_name)) is not None:
            return repository_transferred(owner)
        state = _begun(task, answer, page.read)
        reading = self._read(task, state, page, following)
        changed = [
            {"number": item.number, "node_id": item.node_id, "updated_at": item.updated_at}
            for item in page.read
            if state.known is None or item.updated_at is None or item.updated_at >= state.known
        ]
        jobs = details.jobs_of(task, state.repository, state.details, changed)
        return msgspec.structs.replace(
            reading, documents=page.documents, skipped=page.skipped, follow_ups=[*jobs, *reading.follow_ups]
        )

    def _read(self, task: Task, state: ListState, page: Items[Item], following: str | None) -> Reading:
        last = next((item.updated_at for item in reversed(page.read) if item.updated_at), None)
        state = msgspec.structs.replace(state, oldest=last or state.oldest)
        # 1. The list goes on: read the next page.
        if following is not None and not page.is_empty and not _is_far_enough(state, last):
            return Reading(follow_ups=[_further(task, state, last, following)])
        # The upward pages have reached the range that was read downwards.
        reached_end = following is None if state.upto is None else state.known is None
        state = msgspec.structs.replace(state, is_covered=state.is_covered or (reached_end and not state.is_unsteady))
        # 2. The lap is over.
        return self._end_of_lap(task, state)

    def unchanged(self, task: Task, _answer: Answer) -> Reading:
        """Handle a 304: nothing changed since the last run, or since the previous lap."""
        state = ListState.of(task)
        if state.lap > 1:
            return self._end(task, state)
        cursor = task.cursor or Cursor()
        return Reading(follow_ups=self._reviews(task, state, cursor.etag, cursor.timestamp, begin=reviews.check_job))

    def refused(self, task: Task, answer: Answer) -> Reading | None:
        """Treat disabled issues as an empty list, and read a list that is too long from its other end."""
        if answer.status == 410:
            gone = Listing(kinds.DOCUMENTS[task.spec.kind], task.spec.resource, task.run_id)
            return Reading(completed=[gone])
        if answer.status == 422 and _TOO_MANY in answer.body.decode(errors="replace").lower():
            return _upwards(task, ListState.of(task))
        return None

    def _end_of_lap(self, task: Task, state: ListState) -> Reading:
        """End the reading after a lap of one page or the last lap; otherwise begin another lap."""
        if state.number == 1:
            return self._end(task, state)
        if state.lap == MOST_LAPS:  # the list keeps changing: the next run continues, and nothing is marked as gone
            return self._end(task, msgspec.structs.replace(state, is_covered=False))
        again = msgspec.structs.replace(
            state, path=None, number=1, lap=state.lap + 1, known=state.newest, upto=None, since_of_page=None
        )
        return Reading(follow_ups=[_job(task, again)])

    def _end(self, task: Task, state: ListState) -> Reading:
        """Return the cursor for the next run, and the completed listing if a lap reached the end of the list."""
        timestamp = state.newest or state.known
        whole = [Listing(kinds.DOCUMENTS[task.spec.kind], task.spec.resource, task.run_id)] if state.is_covered else []
        # A covered list omits nothing, so the next run may read as far back as it wants.
        reach = None if state.is_covered else state.reach
        return Reading(
            completed=whole,
            follow_ups=self._reviews(task, state, state.etag, timestamp),
            cursor=Cursor(cursor=reach, timestamp=timestamp, etag=state.etag, credential=state.reader),
        )

    def _reviews(
        self,
        task: Task,
        state: ListState,
        etag: str | None,
        newest: str | None,
        begin: Callable[[Task, RepositoryScope, str | None, str], JobSpec] = reviews.first_job,
    ) -> list[JobSpec]:
        has_reviews = self._has_reviews if state.has_reviews is None else state.has_reviews
        if task.spec.kind != kinds.REPO_PRS or not has_reviews or newest is None:
            return []
        return [begin(task, state, etag, newest)]


def _begun(task: Task, answer: Answer, found: Sequence[Item]) -> ListState:
    """The initial state; the first page of a lap determines how far back the next run reads."""
    state = ListState.of(task)
    if state.path is not None:
        return state
    # The newest change on the first page: the next run reads down to it. A change during this run is newer.
    newest = max((item.updated_at for item in found if item.updated_at), default=state.newest)
    state = msgspec.structs.replace(state, newest=newest, etag=answer.headers.get("ETag"), reader=task.credential)
    if state.lap > 1 or state.full:
        return state
    left, since = _left_by(task, state), state.since
    # Continue from the last run, unless the option `since` begins later.
    if left is not None and left.timestamp is not None and (since is None or since <= left.timestamp):
        return msgspec.structs.replace(state, known=left.timestamp, reach=left.cursor)
    return msgspec.structs.replace(state, known=since, reach=since)


def _left_by(task: Task, state: ListState) -> Cursor | None:
    """The cursor of the last run, unless that run omitted items that this run includes."""
    cursor = task.cursor
    if cursor is None or state.full:
        return None
    reach = cursor.cursor
    return cursor if reach is None or (state.since is not None and state.since >= reach) else None


def _is_far_enough(state: ListState, last: str | None) -> bool:
    """Whether the remaining items are known. Several items may have changed in one second, so it is read completely.

    False if no item of the page has a readable time.
    """
    if last is None:
        return False
    if state.upto is not None:
        return last > state.upto
    return state.known is not None and last < state.known


def _further(task: Task, state: ListState, last: str | None, following: str) -> JobSpec:
    """The job for the next page: by the time `last` of the last item if items can be deleted, otherwise by its link.

    If all items of a page changed in one second, that second is read by page number, and nothing is marked as gone.
    """
    if not kinds.REGISTRY[task.spec.kind].can_vanish:
        return _page(task, state, following)
    if last is None:
        return _page(task, msgspec.structs.replace(state, is_unsteady=True), following)
    # First page of a list from which items can vanish: go on upwards, to the oldest change of that page.
    if state.upto is None:
        upwards = msgspec.structs.replace(state, upto=state.oldest, since_of_page=state.known)
    # The next range begins at the last item of this one. It is read again, which makes the ranges overlap.
    elif last != state.since_of_page:
        upwards = msgspec.structs.replace(state, since_of_page=last)
    else:
        return _page(task, msgspec.structs.replace(state, is_unsteady=True), following)
    return _page(task, upwards, upwards.upward_path(task.spec.kind))


def _page(task: Task, state: ListState, path: str) -> JobSpec:
    return _job(task, msgspec.structs.replace(state, path=path, number=state.number + 1))


def _job(task: Task, state: ListState) -> JobSpec:
    lap = f"lap {state.lap} " if state.lap > 1 else ""
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"{lap}page {state.number}",
        params=state.params,
        affinity=task.credential,
        owner=task.spec.owner,
    )


def _upwards(task: Task, state: ListState) -> Reading:
    """At the page limit, continue upwards from the oldest item, range by range, until both directions meet."""
    # GitHub limits the number of pages of one query. Another start of the range makes a new query.
    since = state.since_of_page if state.upto is None else state.oldest
    if state.oldest is None or (state.upto is not None and since == state.since_of_page):
        return Reading(
            verdict=Verdict.GONE, reason="more items changed in one second than the page limit allows to read"
        )
    upwards = msgspec.structs.replace(
        state,
        upto=state.upto or state.oldest,
        since_of_page=state.known if state.upto is None else since,
        number=state.number + 1,
    )
    return Reading(follow_ups=[_job(task, msgspec.structs.replace(upwards, path=upwards.upward_path(task.spec.kind)))])
