"""The expected content of a collected copy, and the calls of a perfect collector."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github import profiles
from tidegate_simulators.github.config import Behaviour
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.ledger import Needed
from tidegate_simulators.github.repository import Account, Repository, Standing
from tidegate_simulators.github.world import World

KINDS = (
    "profile", "repositories", "events", "issues", "pulls", "commits", "issue_comments", "review_comments", "reviews",
)  # fmt: skip
ESSENTIAL = ("profile", "repositories", "events", "issues", "pulls", "commits")
PULLS_PER_QUERY, REVIEWS_PER_PULL = 100, 50
"""How many pull requests, and reviews of each, a GraphQL query can ask for and still be in time."""
_PER_PAGE = 100


class RepositoryTruth(msgspec.Struct, frozen=True):
    """Everything that can be read of one repository, item by item as the lists show it."""

    repository: dict[str, Any]
    issues: list[dict[str, Any]]
    pulls: list[dict[str, Any]]
    commits: list[dict[str, Any]]
    issue_comments: list[dict[str, Any]]
    review_comments: list[dict[str, Any]]
    reviews: list[dict[str, Any]]


class Truth(msgspec.Struct, frozen=True):
    """Everything that can be read of one user now. A repository that is listed but refused has no items."""

    profile: dict[str, Any]
    events: list[dict[str, Any]]
    repositories: list[RepositoryTruth]


def truth(world: World, login: str, behaviour: Behaviour | None = None) -> Truth:
    """All items of one user."""
    account, items = world.require_account(login), Items(world)
    seen = world.events_of(account).visible(world.now(), (behaviour or Behaviour()).events_late_s)
    return Truth(
        profile=profiles.user(world, account),
        events=[profiles.event(world, account, happened) for happened in seen],
        repositories=[_repository_truth(items, found) for found in listed(world, account)],
    )


def listed(world: World, account: Account) -> list[Repository]:
    """What the list of a user's repositories shows, in its default order."""
    return sorted((r for r in world.repositories_of(account) if r.is_listed), key=lambda r: r.full_name.lower())


def _repository_truth(items: Items, found: Repository) -> RepositoryTruth:
    readable = found.standing is Standing.PUBLIC
    numbers = found.threads.numbers() if readable and found.has_issues else []
    pulls = found.threads.pulls() if readable else []
    return RepositoryTruth(
        repository=profiles.repository(found),
        issues=[items.issue(found, n) for n in numbers],
        pulls=[items.pull(found, n) for n in pulls],
        commits=[items.commit(found, ref) for ref in (found.history.walk(found.history.head) if readable else [])],
        issue_comments=[items.comment(found, o) for o in (found.comments.ordinals() if readable else [])],
        review_comments=[
            items.review_comment(found, o) for o in (found.review_comments.ordinals() if readable else [])
        ],
        reviews=[items.review(found, o) for o in (found.reviews.ordinals() if readable else [])],
    )


def perfect_calls(
    world: World, logins: Iterable[str], include: Iterable[str] = ESSENTIAL, behaviour: Behaviour | None = None
) -> Needed:
    """What the first collection of these users costs without any unnecessary call.

    Every included list of every listed repository is read once, a hundred items a page, and no page is asked for that
    no link named. A list costs one call even if it turns out empty (or 409), since nothing else would tell. A withheld
    repository (404, 403, 451) costs one call: the first refused list tells that the others are refused too. The issues
    of a repository that says `has_issues: false` cost nothing. Reviews cost one GraphQL query for each 100 pull
    requests with 50 reviews each, and one more for each further 100 reviews of one of them. An unchanged account costs
    nothing the next time.
    """
    include = tuple(include)
    for kind in include:
        if kind not in KINDS:
            raise InvalidArgument("include", kind, f"must be among {', '.join(KINDS)}")
    by_kind, by_login = dict.fromkeys(include, 0), dict[str, int]()
    for login in logins:
        account = world.require_account(login)
        needed = {kind: _needed(world, account, kind, behaviour or Behaviour(), include) for kind in include}
        by_login[login] = sum(needed.values())
        for kind, calls in needed.items():
            by_kind[kind] += calls
    graphql = by_kind.get("reviews", 0)
    return Needed(core=sum(by_kind.values()) - graphql, graphql=graphql, by_kind=by_kind, by_login=by_login)


def _needed(world: World, account: Account, kind: str, behaviour: Behaviour, include: Sequence[str]) -> int:
    shown = listed(world, account)
    match kind:
        case "profile":
            return 1
        case "repositories":
            return _pages(len(shown))
        case "events":
            return _pages(len(world.events_of(account).visible(world.now(), behaviour.events_late_s)))
        case _:
            return sum(_needed_of(found, kind, include) for found in shown)


def _needed_of(found: Repository, kind: str, include: Sequence[str]) -> int:
    if found.standing is not Standing.PUBLIC:
        return int(kind == ("commits" if "commits" in include else _first_list(include)))
    if kind == "issues" and not found.has_issues:
        return 0
    match kind:
        case "issues":
            return _pages(len(found.threads.numbers()))
        case "pulls":
            return _pages(len(found.threads.pulls()))
        case "commits":
            return _pages(len(found.history))
        case "issue_comments":
            return _pages(len(found.comments.ordinals()))
        case "review_comments":
            return _pages(len(found.review_comments.ordinals()))
        case _:
            return _review_queries(found)


def _first_list(include: Sequence[str]) -> str:
    """The list of a repository that is asked for first where commits are not wanted."""
    return next(kind for kind in include if kind not in ("profile", "repositories", "events"))


def _review_queries(found: Repository) -> int:
    pulls = found.threads.pulls()
    per_pull = dict.fromkeys(pulls, 0)
    for ordinal in found.reviews.ordinals():
        per_pull[found.reviews.parents[ordinal]] += 1
    further = sum(-(-max(0, count - REVIEWS_PER_PULL) // _PER_PAGE) for count in per_pull.values())
    return max(1, -(-len(pulls) // PULLS_PER_QUERY)) + further


def _pages(items: int) -> int:
    return max(1, -(-items // _PER_PAGE))
