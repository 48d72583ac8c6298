"""Reviews of pull requests, by GraphQL: a hundred pull requests with up to fifty reviews each cost one point.

Reviews are requested after the list of pull requests was read. The ETag of that list identifies the state of the
reviews, because a review changes its pull request: if the reviews of that ETag were read before, no query is sent.
Further reviews of a pull request with more than fifty are requested before the next pull requests.

A complete collection reads pull requests in the order of creation, which is stable; an incremental one reads from the
last changed pull request down to the time up to which the last run knows them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tidegate.engine.items import read_items
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document, Listing
from tidegate.systems.github import items, kinds
from tidegate.systems.github.graphql_answers import STUCK, PageInfo, Pull, Review, parse
from tidegate.systems.github.requests import GithubCall
from tidegate.systems.github.states import RepositoryScope

PULLS_AT_ONCE, REVIEWS_OF_EACH, REVIEWS_AT_ONCE = 100, 50, 100
"""Page sizes: pull requests, reviews included with each, and further reviews of one pull request."""
_REVIEWS = """
fragment found on PullRequest {
  id number updatedAt
  reviews(first: $reviews, after: $reviews_after) {
    nodes {
      id fullDatabaseId state body submittedAt updatedAt url authorAssociation
      commit { oid }
      author { login ... on User { databaseId } }
    }
    pageInfo { hasNextPage endCursor }
  }
}
"""
_OF_REPOSITORY = """
query(
  $id: ID!, $first: Int!, $after: String, $reviews: Int!, $reviews_after: String,
  $field: IssueOrderField!, $direction: OrderDirection!
) {
  node(id: $id) {
    ... on Repository {
      pullRequests(first: $first, after: $after, orderBy: {field: $field, direction: $direction}) {
        nodes { ...found }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}
"""
_OF_PULL = "query($id: ID!, $reviews: Int!, $reviews_after: String) { node(id: $id) { ...found } }"


class ReviewState(RepositoryScope, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of reading reviews."""

    etag: str | None = None
    """ETag of the list of pull requests."""
    newest: str
    is_probe: bool = False
    """Whether the job only checks if the reviews are known. It needs no query, so it does not wait for that bucket."""
    number: int = 1
    first: int = PULLS_AT_ONCE
    after: str | None = None
    known: str | None = None
    pending: tuple[tuple[str, str], ...] = ()
    """Pull requests with further reviews, and the cursors of these; they are read before the next page."""
    is_over: bool = False
    """Whether no further pull requests are needed."""
    is_covered: bool = False


def first_job(task: Task, state: RepositoryScope, etag: str | None, newest: str) -> JobSpec:
    """The job that follows a changed list of pull requests, and requests their reviews."""
    carried = ReviewState(repository=state.repository, full=state.full, since=state.since, etag=etag, newest=newest)
    return JobSpec(
        kind=kinds.REPO_REVIEWS,
        resource=state.repository.resource,
        params=carried.params,
        bucket="graphql",
        owner=task.spec.owner,
    )


def check_job(task: Task, state: RepositoryScope, etag: str | None, newest: str) -> JobSpec:
    """The job that follows an unchanged list of pull requests. It only checks whether the reviews are known.

    Most likely they are, so it does not wait for the allowance of queries.
    """
    spec = first_job(task, state, etag, newest)
    return msgspec.structs.replace(spec, params={**spec.params, "is_probe": True}, bucket="core")


def check_result(task: Task) -> Reading:
    """The result of the job of `check_job`: nothing if the reviews are known, otherwise the job that requests them."""
    if is_known(task):
        return Reading()
    return Reading(follow_ups=[_job(task, msgspec.structs.replace(_begun(task), is_probe=False))])


def needs_no_query(task: Task) -> bool:
    """Whether this job sends no query: the reviews are known, or another job requests them."""
    return ReviewState.of(task).is_probe or is_known(task)


def is_known(task: Task) -> bool:
    """Whether the reviews of this state of the pull requests were read already."""
    # The cursor has the ETag that the list of pull requests had when their reviews were read last.
    state, cursor = ReviewState.of(task), task.cursor
    return not state.full and cursor is not None and cursor.etag is not None and cursor.etag == state.etag


def ask(task: Task) -> GithubCall:
    """Build the query for the next pull requests, or for further reviews of one pull request."""
    state = _begun(task)
    if state.pending:
        pull, after = state.pending[0]
        return GithubCall(
            path="/graphql",
            query=_OF_PULL + _REVIEWS,
            variables={"id": pull, "reviews": REVIEWS_AT_ONCE, "reviews_after": after},
        )
    order = ("CREATED_AT", "ASC") if state.known is None else ("UPDATED_AT", "DESC")
    variables: dict[str, Any] = {
        "id": state.repository.node_id,
        "first": state.first,
        "after": state.after,
        "reviews": REVIEWS_OF_EACH,
        "field": order[0],
        "direction": order[1],
    }
    return GithubCall(path="/graphql", query=_OF_REPOSITORY + _REVIEWS, variables=variables)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Read a GraphQL answer: data, errors, or both."""
    state = _begun(task)
    found = parse(answer, is_pull=bool(state.pending))
    if isinstance(found, Reading):
        return found
    reviews = [(read_items(pull.reviews.nodes, Review, partial(_document, task, pull))) for pull in found.pulls]
    documents = [document for each in reviews for document in each.documents]
    skipped = [*found.skipped, *(reason for each in reviews for reason in each.skipped)]
    # Cursors that do not move would request the same pages forever. What is behind them counts as skipped.
    after = state.pending[0][1] if state.pending else None
    skipped += [STUCK for pull in found.pulls if pull.reviews.page_info.is_stuck(after)]
    if found.page_info is not None and found.page_info.is_stuck(state.after):
        return Reading(documents=documents, skipped=[*skipped, STUCK])
    more = tuple(more for pull in found.pulls for more in _more(pull, after))
    if found.page_info is None:
        # Further reviews of the same pull request come first; the list goes on when none is pending.
        state = msgspec.structs.replace(state, pending=more + state.pending[1:])
    else:
        state = _advanced(state, found.pulls, found.page_info, more)
    return msgspec.structs.replace(_go_on(task, state), documents=documents, skipped=skipped)


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """Handle a 304, which GraphQL does not use."""
    return Reading(verdict=Verdict.RETRY, reason="304 to a query")


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 502 or 504: the query timed out; request half as many."""
    state = _begun(task)
    if answer.status not in (502, 504) or state.pending or state.first == 1:
        return None
    # The page number stays. The size is part of the name of the job, so this is another job.
    half = msgspec.structs.replace(state, first=state.first // 2)
    return Reading(follow_ups=[_job(task, half)])


def _begun(task: Task) -> ReviewState:
    state = ReviewState.of(task)
    if task.cursor is None or state.full:
        return state
    return msgspec.structs.replace(state, known=task.cursor.timestamp)


def _advanced(
    state: ReviewState, pulls: Sequence[Pull], page: PageInfo, pending: tuple[tuple[str, str], ...]
) -> ReviewState:
    is_last = not page.has_next_page
    # If no pull request of a page could be read, the page does not show how far reading has come.
    is_known = state.known is not None and bool(pulls) and pulls[-1].updated_at < state.known
    return msgspec.structs.replace(
        state,
        after=page.end_cursor,
        pending=pending,
        is_over=is_last or is_known,
        is_covered=is_last and state.known is None,
    )


def _go_on(task: Task, state: ReviewState) -> Reading:
    if state.pending or not state.is_over:
        onwards = msgspec.structs.replace(state, number=state.number + 1)
        return Reading(follow_ups=[_job(task, onwards)])
    kind = kinds.DOCUMENTS[task.spec.kind]
    return Reading(
        completed=[Listing(kind, task.spec.resource, task.run_id)] if state.is_covered else [],
        cursor=Cursor(timestamp=state.newest, etag=state.etag),
    )


def _job(task: Task, state: ReviewState) -> JobSpec:
    return JobSpec(
        kind=task.spec.kind,
        resource=task.spec.resource,
        page=f"page {state.number} of {state.first}",
        params=state.params,
        bucket="graphql",
        owner=task.spec.owner,
    )


def _more(pull: Pull, after: str | None) -> tuple[tuple[str, str], ...]:
    page = pull.reviews.page_info
    return ((pull.id, page.end_cursor),) if page.end_cursor and page.has_next_page and page.end_cursor != after else ()


def _document(task: Task, pull: Pull, review: Review, _raw: msgspec.Raw) -> Document:
    """Build a document with the field names of the REST API, which all other documents have."""
    author = review.author
    body = {
        "id": int(review.full_database_id),
        "node_id": review.id,
        "pull_request_number": pull.number,
        "user": None if author is None else {"login": author.login, "id": author.database_id},
        "body": review.body or "",
        "state": review.state,
        "html_url": review.url,
        "submitted_at": review.submitted_at,
        "commit_id": None if review.commit is None else review.commit.oid,
        "author_association": review.author_association,
    }
    return items.document(
        task, kinds.DOCUMENTS[task.spec.kind], review.full_database_id, body, version=review.updated_at
    )
