"""What a perfect collector spends: checked by one that walks the lists, knowing nothing of the world's sizes."""

from typing import Any

import pytest

from tests.simulators.github.client import Client, simulated
from tests.simulators.github.test_graphql import REVIEWS
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github import ESSENTIAL, KINDS, Sizes, World, WorldShape, perfect_calls

LISTS = {
    "commits": "commits?per_page=100",
    "issues": "issues?state=all&direction=asc&per_page=100",
    "pulls": "pulls?state=all&direction=asc&per_page=100",
    "issue_comments": "issues/comments?per_page=100",
    "review_comments": "pulls/comments?per_page=100",
}
WITHHELD = {403, 404, 451}
REFUSED = {*WITHHELD, 409, 410}


class Walker:
    """Reads everything of a user, once, and keeps it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.kept: dict[tuple[int, str], list[Any]] = {}
        self.is_withheld = False

    async def pages(self, url: str) -> list[Any]:
        items: list[Any] = []
        following: str | None = url
        while following:
            got = await self._client.get(following)
            self.is_withheld = got.status in WITHHELD
            if got.status in REFUSED:
                return []
            assert got.status == 200, got.body
            items += got.json
            following = got.links.get("next")
        return items

    async def walk(self, login: str) -> tuple[Any, list[Any], list[Any]]:
        profile = (await self._client.get(f"/users/{login}")).json
        repositories = await self.pages(f"/users/{login}/repos?per_page=100")
        events = await self.pages(f"/users/{login}/events?per_page=100")
        for repository in repositories:
            self.kept[repository["id"], "reviews"] = []
            for kind, path in LISTS.items():
                if kind != "issues" or repository["has_issues"]:
                    key = repository["id"], kind
                    self.kept[key] = await self.pages(f"/repositories/{repository['id']}/{path}")
                if self.is_withheld:  # and so are the others
                    break
            else:
                self.kept[repository["id"], "reviews"] = await self.reviews(repository)
        return profile, repositories, events

    async def reviews(self, repository: dict[str, Any]) -> list[Any]:
        owner, name = repository["full_name"].split("/")
        found: list[Any] = []
        after: str | None = None
        while True:
            got = await self._client.query(REVIEWS, owner=owner, name=name, after=after)
            page = (got.json["data"]["repository"] or {}).get("pullRequests")
            if page is None:
                return []
            for pull in page["nodes"]:
                found += pull["reviews"]["nodes"]
                assert not pull["reviews"]["pageInfo"]["hasNextPage"]
            if not page["pageInfo"]["hasNextPage"]:
                return found
            after = page["pageInfo"]["endCursor"]


@pytest.mark.full
async def test_a_perfect_collection_has_the_predicted_cost_and_the_true_data():
    async with simulated(users=12, repositories=None, sizes=None, quirks=True) as client:
        logins = [client.sim.world.logins()[i] for i in (2, 4, 6, 9, 11)]  # one has each kind of odd repository
        foretold = client.sim.perfect_calls(logins, KINDS)
        walker = Walker(client)
        for login in logins:
            calls = client.sim.report().calls
            client.token = client.sim.token_of(login)
            profile, repositories, events = await walker.walk(login)

            truth = client.sim.truth(login)
            assert client.sim.report().calls - calls == foretold.by_login[login]
            assert (profile, events) == (truth.profile, truth.events)
            assert repositories == [found.repository for found in truth.repositories]
            for found in truth.repositories:
                for kind in LISTS:
                    assert walker.kept.get((found.repository["id"], kind), []) == getattr(found, kind), kind
                reviews = walker.kept[found.repository["id"], "reviews"]
                assert {int(r["fullDatabaseId"]) for r in reviews} == {r["id"] for r in found.reviews}

        report = client.sim.report(logins, KINDS)
        assert report.needed == foretold
        assert report.calls == foretold.total
        assert report.spent["graphql"] == foretold.graphql
        assert report.spent["core"] == foretold.core
        assert report.by_status.keys() == {"200", "403", "409", "451"}
        assert report.broken == 0


def test_the_reference_repository_costs_a_hundred_calls():
    sizes = Sizes(issues=1_000, pulls=500, commits=3_000, issue_comments=3_000, review_comments=1_500, reviews=1_000)
    world = World(WorldShape(users=1, repositories=1, sizes=sizes, quirks=False))

    needed = perfect_calls(world, world.logins(), KINDS)

    assert needed.by_kind == {
        "profile": 1, "repositories": 1, "events": needed.by_kind["events"], "issues": 15, "pulls": 5, "commits": 30,
        "issue_comments": 30, "review_comments": 15, "reviews": 5,
    }  # fmt: skip


def test_disabled_issues_cost_nothing_and_empty_lists_one_call():
    world = World(WorldShape(users=1, repositories=2, sizes=Sizes(), quirks=False))
    next(world.all_repositories()).has_issues = False

    needed = perfect_calls(world, world.logins(), ESSENTIAL)

    assert (needed.by_kind["issues"], needed.by_kind["commits"]) == (1, 2)


def test_unknown_kinds_are_refused():
    world = World(WorldShape(users=1))
    with pytest.raises(InvalidArgument, match="include is 'stars'"):
        perfect_calls(world, world.logins(), ["stars"])
