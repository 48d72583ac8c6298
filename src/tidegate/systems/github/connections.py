"""Lists of a repository that only GraphQL has, such as its discussions: a hundred items cost one point.

The first run reads a list in the order of creation, which nothing moves. Later runs read the last changed items first,
down to the time at which the last run began. A query has no ETag, so a list that did not change costs one point.
"""

from datetime import timedelta

import msgspec

from tidegate.engine.items import read_items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document
from tidegate.systems.github import details, items, kinds
from tidegate.systems.github.graphql_answers import STUCK, PageInfo, read_node
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import RepositoryScope, format_upstream_time

_MARGIN = timedelta(minutes=1)
"""Items that changed so shortly before a run began may be missing in its first page."""
_TOO_SLOW = frozenset({502, 504})
_QUERY = """
query($id: ID!, $first: Int!, $after: String) {
  node(id: $id) {
    ... on Repository {
      items: CONNECTION(first: $first, after: $after, orderBy: {field: FIELD, direction: DIRECTION}) {
        nodes { SELECTION }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}
"""


class ConnectionState(RepositoryScope, frozen=True, kw_only=True, omit_defaults=True):
    """One page of a list."""

    number: int = 1
    first: int = PER_PAGE
    """Items of a page; halved where the query takes GitHub too long."""
    after: str | None = None
    known: str | None = None
    """When the last run began, if it read all that this run wants."""
    reaches: str | None = None
    """The earliest change that the last run read; None: all."""
    began: str | None = None
    """When this run began, for the next one."""

    @property
    def floor(self) -> str | None:
        """Items that changed before are left out; None: no item is."""
        return self.known or self.since


class _Count(msgspec.Struct):
    total_count: int


class _ConnectionItem(msgspec.Struct):
    """The fields of an item that the reader needs; the rest is stored unchanged."""

    id: int
    updated_at: str
    node_id: str | None = None
    number: int | None = None
    comments: _Count | None = None

    @property
    def has_details(self) -> bool:
        """Whether there may be comments."""
        return self.comments is None or self.comments.total_count > 0


class _Items(msgspec.Struct, rename="camel"):
    nodes: list[msgspec.Raw]
    page_info: PageInfo


class _RepositoryNode(msgspec.Struct):
    items: _Items


def ask(task: Task) -> GithubCall:
    """Return the query for a page."""
    state, declared = _begun(task), kinds.REGISTRY[task.spec.kind]
    field, direction = ("CREATED_AT", "ASC") if state.floor is None else ("UPDATED_AT", "DESC")
    query = _QUERY.replace("FIELD", field).replace("DIRECTION", direction)
    query = query.replace("CONNECTION", declared.connection or "").replace("SELECTION", declared.selection or "")
    variables = {"id": state.repository.node_id, "first": state.first, "after": state.after}
    return GithubCall(path="/graphql", query=query, variables=variables)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Read a page. A repository that GraphQL does not show is withheld, as in the REST API."""
    node = read_node(answer, "items", "nodes", missing=Verdict.UNAVAILABLE)
    if isinstance(node, Reading):
        return node
    current, page = _begun(task), msgspec.json.decode(node, type=_RepositoryNode).items
    found = read_items(page.nodes, _ConnectionItem, lambda item, raw: _document(task, item, raw))
    # By the upstream's clock, and a little earlier: an item that changes now may be missing on this page.
    began = current.began or format_upstream_time((answer.date or answer.received_at) - _MARGIN)
    state = msgspec.structs.replace(current, began=began, after=page.page_info.end_cursor, number=current.number + 1)
    changed = [
        (item, document)
        for item, document in zip(found.read, found.documents, strict=True)
        if state.floor is None or item.updated_at >= state.floor
    ]
    documents = [document for _, document in changed]
    with_details = [msgspec.structs.asdict(item) for item, _ in changed if item.has_details]
    jobs = details.jobs_of(task, state.repository, state.details, with_details)
    # A page of which no item could be read says nothing about the rest.
    is_known = state.floor is not None and bool(found.read) and found.read[-1].updated_at < state.floor
    if page.page_info.has_next_page and not is_known:
        # A cursor that does not move would request the same page forever.
        if page.page_info.is_stuck(current.after):
            return Reading(documents=documents, skipped=[*found.skipped, STUCK], follow_ups=jobs)
        return Reading(documents=documents, skipped=found.skipped, follow_ups=[*jobs, _job(task, state)])
    reaches = state.since if state.known is None else state.reaches
    return Reading(
        documents=documents,
        skipped=found.skipped,
        follow_ups=jobs,
        # Only a list that was read from its beginning to its end shows which items are gone.
        completed=[task.listing(kinds.DOCUMENTS[task.spec.kind])] if state.floor is None else [],
        cursor=Cursor(timestamp=began, cursor=reaches),
    )


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """GraphQL has no 304."""
    return Reading(verdict=Verdict.RETRY, reason="304 to a query")


def refused(task: Task, answer: Answer) -> Reading | None:
    """502 and 504: the query took too long. Request half as many items."""
    state = _begun(task)
    if answer.status not in _TOO_SLOW or state.first == 1:
        return None
    return Reading(follow_ups=[_job(task, msgspec.structs.replace(state, first=state.first // 2))])


def _begun(task: Task) -> ConnectionState:
    """The state with what the last run left; a run that needs older items than that one read starts from the
    beginning."""
    state, left = ConnectionState.of(task), task.cursor
    if left is None or state.full:
        return state
    # The last run left out older items, which this run wants.
    if left.cursor is not None and (state.since is None or state.since < left.cursor):
        return state
    return msgspec.structs.replace(state, known=left.timestamp, reaches=left.cursor)


def _document(task: Task, item: _ConnectionItem, raw: msgspec.Raw) -> Document:
    return items.document(task, kinds.DOCUMENTS[task.spec.kind], str(item.id), raw, version=item.updated_at)


def _job(task: Task, state: ConnectionState) -> JobSpec:
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"page {state.number} of {state.first}",
        params=state.params,
        bucket=task.spec.bucket,
        owner=task.spec.owner,
    )
