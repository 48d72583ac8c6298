"""The simulator's truth as documents, so that figures are compared with it and not with what was collected."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from tests.systems.github.deployment import CALM
from tests.systems.github.statistics.oracle import Oracle
from tidegate.storage.documents import StoredDocument
from tidegate.systems.github.statistics import Statistics
from tidegate_simulators.github import GithubSimulator

PROMPT = msgspec.structs.replace(CALM, events_late_s=(0, 0))
"""A simulator whose events show up at once, so that none does between a collection and the look at the truth."""
_NOW = datetime.now(UTC)


def documents_of(simulator: GithubSimulator, login: str) -> Iterator[StoredDocument]:
    """Everything that can be read of a user."""
    truth = simulator.truth(login)
    yield _document("user", login, f"user:{login}", truth.profile)
    for event in truth.events:
        yield _document("event", login, f"user:{login}", event)
    for found in truth.repositories:
        resource = f"repo:{found.repository['full_name']}"
        yield _document("repository", login, f"user:{login}/repos", found.repository)
        lists = {
            "issue": found.issues,
            "pull_request": found.pulls,
            "commit": found.commits,
            "issue_comment": found.issue_comments,
            "review_comment": found.review_comments,
            "review": found.reviews,
        }
        for kind, items in lists.items():
            for item in items:
                yield _document(kind, login, resource, item)


def _document(kind: str, owner: str, resource: str, body: dict[str, Any]) -> StoredDocument:
    number = str(body.get("id", body.get("sha")))
    text = msgspec.json.encode(body).decode()
    return StoredDocument(
        kind=kind,
        id=number,
        owner=owner,
        resource=resource,
        version=None,
        text=text,
        created_at=_NOW,
        changed_at=_NOW,
        gone_at=None,
        fingerprint=1,
    )


async def assert_true(statistics: Statistics, simulator: GithubSimulator, logins: Iterable[str]) -> None:
    """The statistics of these users, who are all that were collected, and those of everybody, are the truth."""
    users = list(logins)
    overall = await statistics.overall()
    oracle = Oracle([each for login in users for each in documents_of(simulator, login)], overall.as_of.date())
    for login in users:
        found = await statistics.of_user(login)
        assert found is not None
        account = simulator.truth(login).profile["id"]
        assert found.repositories == oracle.repositories(login)
        assert found.in_repositories == oracle.in_repositories(login, account)
        assert found.by_user == oracle.by_user(account)
    assert overall.totals == oracle.totals(users)
    assert overall.days == oracle.days(30)
    assert overall.by_day == oracle.periods(30, date.isoformat)
    assert overall.by_month == oracle.periods(30, lambda day: day.strftime("%Y-%m"))
