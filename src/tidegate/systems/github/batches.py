"""Details that only GraphQL has, of many items at once: review threads, comments of discussions.

Like other details, they follow the list above them, which shows what is new or changed; see `details`. One query reads
the first few details of every item, since GitHub counts the page sizes that a query names and not what it finds.
Further details of an item are read by a query of their own, and so are further replies to a detail.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec

from tidegate.core.errors import UNDECODABLE, InvalidArgument
from tidegate.engine.items import read_items
from tidegate.engine.source import JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document
from tidegate.systems.github import items, kinds
from tidegate.systems.github.graphql_answers import STUCK, PageInfo, read_node
from tidegate.systems.github.kinds import Kind
from tidegate.systems.github.requests import GithubCall
from tidegate.systems.github.states import ListedRepository, State

AT_ONCE, OF_EACH, OF_ONE = 50, 9, 50
"""Items of a query, details of each of them, and details of an item that has a query of its own.

50 items with 9 details each cost 5 points, and 10 details would cost 6."""
REPLIES_OF_EACH = 8
_TOO_SLOW = frozenset({502, 504})
_DIGEST = 8
_ITEMS = ("items", "nodes", "replies", "nodes")
"""Where the details of an item are in its node, and the replies in each of them."""
_QUERY = """
query($ids: [ID!]!, $first: Int!, $after: String) {
  nodes(ids: $ids) {
    ... on TYPE {
      items: CONNECTION(first: $first, after: $after) {
        nodes { SELECTION REPLIES }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}
"""
_REPLIES = "replies: CONNECTION(first: COUNT) { nodes { SELECTION } pageInfo { hasNextPage endCursor } }"


class BatchItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of which details are read, or a detail of which replies are read."""

    id: str
    """Its name in GraphQL."""
    fields: dict[str, str | int]
    """Fields that are added to each of the documents."""
    version: str = ""
    """When the item changed. One that changes again during the run is read again."""


class BatchState(State, frozen=True, kw_only=True, omit_defaults=True):
    """The items and the page of one query, which the job carries."""

    repository: ListedRepository
    batch: tuple[BatchItem, ...]
    are_replies: bool = False
    first: int = OF_EACH
    after: str | None = None


class _DetailConnection(msgspec.Struct, rename="camel"):
    nodes: list[msgspec.Raw]
    page_info: PageInfo


class _BatchNode(msgspec.Struct):
    items: _DetailConnection


_decode_node = msgspec.json.Decoder(_BatchNode | None).decode


class _BatchDetail(msgspec.Struct):
    """The fields of a detail that the reader needs; the rest is stored unchanged."""

    node_id: str
    id: int | str
    replies: _DetailConnection | None = None


def jobs_of(task: Task, kind: str, repository: ListedRepository, found: Sequence[Mapping[str, Any]]) -> list[JobSpec]:
    """The jobs that read the details of new or changed items; an item without a `node_id` has none."""
    declared = kinds.REGISTRY[kind]
    batch = [
        BatchItem(
            str(item["node_id"]),
            {name: item[value] for name, value in declared.fields.items()},
            str(item.get("updated_at") or ""),
        )
        for item in found
        if item.get("node_id")
    ]
    return [
        _job(task, kind, BatchState(repository=repository, batch=tuple(batch[start : start + AT_ONCE])))
        for start in range(0, len(batch), AT_ONCE)
    ]


def ask(task: Task) -> GithubCall:
    """Build the query for the details of the items, or for replies to a detail."""
    state, declared = BatchState.of(task), kinds.REGISTRY[task.spec.kind]
    node, connection, replies = declared.node or "", declared.connection or "", ""
    if declared.replies is not None:
        detail, of_replies = declared.replies
        if state.are_replies:
            node, connection = detail, of_replies
        else:
            replies = _REPLIES.replace("CONNECTION", of_replies).replace("COUNT", str(REPLIES_OF_EACH))
    query = _QUERY.replace("REPLIES", replies).replace("TYPE", node).replace("CONNECTION", connection)
    query = query.replace("SELECTION", declared.selection or "")
    variables = {"ids": [each.id for each in state.batch], "first": state.first, "after": state.after}
    return GithubCall(path="/graphql", query=query, variables=variables)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Read the details of all items of the query. Items that are gone or have another shape are skipped."""
    nodes = read_node(answer, *_ITEMS, field="nodes")
    if isinstance(nodes, Reading):
        return nodes
    state, declared = BatchState.of(task), kinds.REGISTRY[task.spec.kind]
    answered = msgspec.json.decode(nodes, type=list[msgspec.Raw])
    if len(answered) != len(state.batch):
        reason = f"GraphQL: {len(answered)} nodes for {len(state.batch)} ids"
        return Reading(verdict=Verdict.RETRY, reason=reason)
    documents, skipped, onwards = list[Document](), list[str](), list[JobSpec | str]()
    for asked, raw in zip(state.batch, answered, strict=True):
        try:
            node = _decode_node(raw)
        except UNDECODABLE as error:
            skipped.append(f"{declared.name} of {_label(asked)}: {error}")
            continue
        if node is None:
            skipped.append(f"{declared.name} of {_label(asked)}: it no longer exists")
            continue
        found = read_items(node.items.nodes, _BatchDetail, partial(_document, task, declared, asked))
        documents += found.documents
        skipped += found.skipped
        onwards += _continue(task, state, asked, node.items.page_info, are_replies=state.are_replies)
        for detail in found.read:
            if detail.replies is None:
                continue
            above = BatchItem(detail.node_id, {**asked.fields, "reply_to_id": detail.id}, asked.version)
            said = read_items(detail.replies.nodes, _BatchDetail, partial(_document, task, declared, above))
            documents += said.documents
            skipped += said.skipped
            onwards += _continue(task, state, above, detail.replies.page_info, are_replies=True)
    return Reading(
        documents=documents,
        skipped=[*skipped, *(each for each in onwards if isinstance(each, str))],
        follow_ups=[each for each in onwards if isinstance(each, JobSpec)],
    )


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """Handle a 304, which GraphQL does not use, as a query has no ETag."""
    return Reading(verdict=Verdict.RETRY, reason="304 to a query")


def refused(task: Task, answer: Answer) -> Reading | None:
    """502 and 504: the query took too long. Request half of the items, or half of the details of one item."""
    state = BatchState.of(task)
    if answer.status not in _TOO_SLOW or (len(state.batch) == 1 and state.first == 1):
        return None
    if len(state.batch) == 1:
        return Reading(follow_ups=[_job(task, task.spec.kind, msgspec.structs.replace(state, first=state.first // 2))])
    middle = len(state.batch) // 2
    halves = (state.batch[:middle], state.batch[middle:])
    return Reading(
        follow_ups=[_job(task, task.spec.kind, msgspec.structs.replace(state, batch=half)) for half in halves]
    )


def _continue(
    task: Task, state: BatchState, item: BatchItem, page: PageInfo, *, are_replies: bool
) -> Iterator[JobSpec | str]:
    """The job that reads further details of an item, or replies to a detail; or the reason why there can be none."""
    is_same = state.batch == (item,) and state.are_replies == are_replies
    if page.is_stuck(state.after if is_same else None):
        yield STUCK
    elif page.has_next_page:
        # A query that was halved because it took too long is not made larger again.
        first = state.first if is_same and state.after is not None else OF_ONE
        further = BatchState(
            repository=state.repository, batch=(item,), are_replies=are_replies, first=first, after=page.end_cursor
        )
        yield _job(task, task.spec.kind, further)


def _document(task: Task, declared: Kind, item: BatchItem, detail: _BatchDetail, raw: msgspec.Raw) -> Document:
    """Build the document of a detail, with fields of the item above it and without the replies to it."""
    body = msgspec.json.decode(raw, type=dict[str, Any])
    body.pop("replies", None)
    for name, path in declared.derived.items():
        body[name] = _whole(body, path)
    body |= item.fields
    version = body.get("updated_at")
    return items.document(
        task,
        kinds.DOCUMENTS[task.spec.kind],
        items.plain_id(str(detail.id)),
        body,
        version=version if isinstance(version, str) else None,
    )


def _whole(body: Any, path: Sequence[str | int]) -> int | None:
    """A number that GraphQL gives as text, because it may need more than 32 bits; None if there is none."""
    try:
        for step in path:
            body = body[step]
        return int(body)
    except (KeyError, IndexError, TypeError):
        return None
    except ValueError:
        raise InvalidArgument(".".join(map(str, path)), body, "must be a number") from None


def _label(item: BatchItem) -> str:
    return str(next(iter(item.fields.values()), item.id))


def _job(task: Task, kind: str, state: BatchState) -> JobSpec:
    labels = list(dict.fromkeys((_label(state.batch[0]), _label(state.batch[-1]))))
    # The digest makes jobs of other items, of other versions of them, and of further pages different jobs.
    digest = blake2b(msgspec.json.encode(state.params), digest_size=_DIGEST).hexdigest()
    return JobSpec(
        kind=kind,
        resource=task.spec.resource,
        page=f"{' to '.join(labels)} {digest}",
        params=state.params,
        bucket=kinds.bucket_of(kind),
        priority=6,
        owner=task.spec.owner,
    )
