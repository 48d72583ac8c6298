"""What is counted of documents, the odd ones included."""

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.systems.github.statistics import world as w
from tidegate.storage.documents import StoredDocument
from tidegate.systems.github import kinds
from tidegate.systems.github.statistics.facts import READERS, Activity, Fact, ItemState, fact_of

SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def document(kind: str, body: object) -> StoredDocument:
    return StoredDocument(
        kind=kind,
        id="1",
        owner="ann",
        resource="repo:ann/x",
        version=None,
        text=msgspec.json.encode(body).decode(),
        created_at=SOME_DAY,
        changed_at=SOME_DAY,
        gone_at=None,
        fingerprint=1,
    )


def fact(kind: str, body: dict[str, Any]) -> Fact:
    found = fact_of(document(kind, body))
    assert found is not None
    return found


def test_every_kind_of_document_up_to_conversations_is_counted():
    counted = {kinds.DOCUMENTS[kind] for kind in kinds.CONVERSATIONS if kind in kinds.DOCUMENTS}
    assert READERS.keys() == {kinds.USER, kinds.REPOSITORY, *counted}


def test_a_commit_belongs_to_its_author_and_its_utc_day():
    found = fact("commit", w.commit("dan", "2026-01-01T01:30:00+02:00"))

    assert (found.activity, found.author_id, found.author_login) == (Activity.COMMIT, 204, "dan")
    assert found.day == date(2025, 12, 31).toordinal()


@pytest.mark.parametrize(
    "author", [None, {}, {"login": "x"}, {"id": 5}, w.ROBOT, w.GHOST, {"login": "a" * 200, "id": 1}]
)
def test_actions_of_unknown_authors_are_not_counted(author: object):
    found = fact("commit", w.commit("dan", w.days_ago(1)) | {"author": author})

    assert (found.activity, found.author_id, found.author_login) == (Activity.COMMIT, None, None)


def test_a_pull_request_in_the_list_of_issues_is_not_an_issue():
    assert fact("issue", w.issue("dan", w.days_ago(1)) | {"pull_request": {"url": "…"}}).activity is None
    assert fact("issue", w.issue("dan", w.days_ago(1)) | {"pull_request": None}).activity is Activity.ISSUE


@pytest.mark.parametrize(
    ("body", "state", "took_s"),
    [
        (w.issue("dan", "2026-01-01T00:00:00Z"), ItemState.OPEN, None),
        (w.issue("dan", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"), ItemState.CLOSED, 60),
        (w.issue("dan", "2026-01-01T00:00:00Z", "2025-12-31T00:00:00Z"), ItemState.CLOSED, 0),
        (w.issue("dan", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z") | {"state": "open"}, ItemState.OPEN, None),
        (w.issue("dan", "2026-01-01T00:00:00Z") | {"state": "closed"}, ItemState.CLOSED, None),
    ],
    ids=["open", "closed", "closed before it was opened", "opened again", "closed at no time"],
)
def test_the_state_of_an_issue_is_the_current_one(body: dict[str, Any], state: ItemState, took_s: int | None):
    found = fact("issue", body)

    assert (found.state, found.took_s) == (state, took_s)


@pytest.mark.parametrize(
    ("body", "state", "took_s"),
    [
        (w.pull("dan", "2026-01-01T00:00:00Z"), ItemState.OPEN, None),
        (w.pull("dan", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", merged=True), ItemState.MERGED, 60),
        (w.pull("dan", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"), ItemState.CLOSED, None),
    ],
    ids=["open", "merged", "rejected"],
)
def test_a_pull_request_is_open_merged_or_rejected(body: dict[str, Any], state: ItemState, took_s: int | None):
    found = fact("pull_request", body)

    assert (found.state, found.took_s) == (state, took_s)


@pytest.mark.parametrize("at", ["", "yesterday", "0000-00-00T00:00:00Z", "99999-01-01T00:00:00Z", None])
def test_an_invalid_date_is_not_counted(at: str | None):
    found = fact("commit", w.commit("dan", at))  # pyright: ignore[reportArgumentType]

    assert (found.activity, found.day) == (Activity.COMMIT, None)


def test_a_repository_is_identified_by_its_own_name_and_not_by_its_list():
    body = w.Repository(id=7, owner="ann", name="y", fork=True, stars=4).body()

    found = fact("repository", body)

    assert (found.resource, found.state, found.activity) == ("repo:ann/y", ItemState.FORK, None)
    assert found.detail is not None
    assert found.detail.stars == 4


def test_numbers_and_names_that_no_table_can_store_are_skipped():
    wild = {"full_name": "ann/y", "stargazers_count": 10**30, "forks_count": -1, "owner": {"id": 10**30, "login": "x"}}
    found = fact("repository", wild)
    assert found.detail is not None
    assert (found.detail.stars, found.detail.times_forked, found.author_id) == (2**40, 0, None)
    assert fact_of(document("repository", {"full_name": "ann/" + "y" * 300})) is None
    assert fact_of(document("repository", {"full_name": "ann/\0"})) is None
    assert fact("commit", {"author": {"id": 1, "login": "a\0"}}).author_id is None


fields = st.sampled_from(
    [
        "user",
        "author",
        "actor",
        "commit",
        "owner",
        "id",
        "login",
        "created_at",
        "closed_at",
        "merged_at",
        "date",
        "state",
    ]
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(READERS)), st.dictionaries(fields, jsons, max_size=6))
def test_any_document_is_read_or_skipped(kind: str, body: dict[str, Any]):
    found = fact_of(document(kind, body))

    assert found is None or found.resource
