"""GraphQL: what it costs and what it gives."""

from typing import Any

import pytest

from tests.simulators.github.client import Client, simulated
from tidegate_simulators.github import Behaviour, FaultKind, LimitSettings, Sizes
from tidegate_simulators.github.graphql_language import Field, SyntaxProblem, Variable, parse

REVIEWS = """
query Reviews($owner: String!, $name: String!, $pulls: Int = 100, $after: String) {
  repository(owner: $owner, name: $name) {  # by name
    pullRequests(first: $pulls, after: $after, orderBy: {field: UPDATED_AT, direction: DESC}) {
      nodes { number fullDatabaseId updatedAt reviews(first: 50) { ...found } }
      pageInfo { hasNextPage endCursor }
    }
  }
  rateLimit { cost remaining nodeCount limit used resetAt }
}
fragment found on PullRequestReviewConnection {
  nodes { fullDatabaseId databaseId state submittedAt author { __typename login ... on User { databaseId } } }
  pageInfo { hasNextPage endCursor }
  totalCount
}
"""
PRICED = """
query($login: String!) {
  user(login: $login) { repositories(first: 100) { nodes { %s } } }
  rateLimit { cost nodeCount remaining }
}
"""
SIZES = Sizes(pulls=120, reviews=300)


async def reviews_of(client: Client, repo: str, pulls: int = 50) -> list[dict[str, Any]]:
    owner, name = repo.split("/")
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        got = await client.query(REVIEWS, owner=owner, name=name, pulls=pulls, after=after)
        page = got.json["data"]["repository"]["pullRequests"]
        for pull in page["nodes"]:
            assert not pull["reviews"]["pageInfo"]["hasNextPage"]
            found += pull["reviews"]["nodes"]
        if not page["pageInfo"]["hasNextPage"]:
            return found
        after = page["pageInfo"]["endCursor"]


async def test_reviews_of_a_repository_cost_a_point_per_fifty_pull_requests():
    async with simulated(sizes=SIZES) as client:
        found = await reviews_of(client, client.repo())

        truth = client.sim.truth(client.login).repositories[0].reviews
        assert {(int(r["fullDatabaseId"]), r["state"], r["submittedAt"]) for r in found} == {
            (r["id"], r["state"], r["submitted_at"]) for r in truth
        }
        assert len(found) == len(truth) == 300
        assert client.sim.report().spent == {"graphql": 3}
        assert {r["databaseId"] for r in found} == {None}, "such numbers do not fit into 32 bits"


async def test_the_cost_is_a_hundredth_of_the_requested_connections():
    async with simulated(sizes=Sizes(pulls=1)) as client:
        pulls = "pullRequests(first: 45) { totalCount }"
        got = await client.query(PRICED % pulls, login=client.login)

        limit = got.json["data"]["rateLimit"]
        assert (limit["cost"], limit["nodeCount"], limit["remaining"]) == (1, 4_600, 4_999)
        assert got.remaining == 4_999

    async with simulated(sizes=Sizes(pulls=1), behaviour=Behaviour(graphql_nodes_in_time=500_000)) as client:
        nested = "pullRequests(first: 50) { nodes { reviews(first: 60) { totalCount } } }"
        limit = (await client.query(PRICED % nested, login=client.login)).json["data"]["rateLimit"]
        assert (limit["cost"], limit["nodeCount"]) == (51, 100 + 5_000 + 300_000)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("reviews { totalCount }", "MISSING_PAGINATION_BOUNDARIES"),
        ("reviews(first: 101) { totalCount }", "EXCESSIVE_PAGINATION"),
        ("reviews(last: 0) { totalCount }", "EXCESSIVE_PAGINATION"),
    ],
)
async def test_a_connection_must_be_bounded(asked: str, problem: str):
    async with simulated() as client:
        owner, name = client.repo().split("/")
        query = (
            f'{{ repository(owner: "{owner}", name: "{name}") {{ pullRequests(first: 1) {{ nodes {{ {asked} }} }} }} }}'
        )
        got = await client.query(query)

        assert got.status == 200
        assert got.json["errors"][0]["type"] == problem


async def test_discussions_are_returned_in_both_orders_and_none_when_disabled():
    query = """
    query($owner: String!, $name: String!, $after: String, $field: String!, $direction: String!) {
      repository(owner: $owner, name: $name) {
        hasDiscussionsEnabled
        discussions(first: 2, after: $after, orderBy: {field: $field, direction: $direction}) {
          nodes { number updatedAt isAnswered category { name } comments(first: 1) { totalCount } }
          pageInfo { hasNextPage endCursor }
          totalCount
        }
      }
    }
    """
    async with simulated(discussions=3) as client:
        owner, name = client.repo().split("/")
        found = client.sim.world.require_repository(client.repo())

        async def numbers(field: str, direction: str) -> list[int]:
            shown, after = list[int](), None
            while True:
                order = {"field": field, "direction": direction}
                got = await client.query(query, owner=owner, name=name, after=after, **order)
                page = got.json["data"]["repository"]["discussions"]
                shown += [node["number"] for node in page["nodes"]]
                after = page["pageInfo"]["endCursor"]
                if not page["pageInfo"]["hasNextPage"]:
                    return shown

        client.sim.extras.change(found, "discussions", 1)
        assert await numbers("CREATED_AT", "ASC") == [1, 2, 3]
        assert await numbers("UPDATED_AT", "DESC") == [1, 3, 2]
        client.sim.mutate.disable_discussions(client.repo())
        assert await numbers("CREATED_AT", "ASC") == []


async def test_too_many_nodes_are_refused():
    async with simulated() as client:
        nested = "pullRequests(first: 100) { nodes { reviews(first: 100) { totalCount } } }"
        got = await client.query(PRICED % nested, login=client.login)

        assert got.json["errors"][0]["type"] == "MAX_NODE_LIMIT_EXCEEDED"


async def test_a_query_that_takes_too_long_is_charged_and_succeeds_with_half_the_page():
    async with simulated(sizes=SIZES, behaviour=Behaviour(error_pause_s=0, graphql_nodes_in_time=5_000)) as client:
        owner, name = client.repo().split("/")
        got = await client.query(REVIEWS, owner=owner, name=name, pulls=100)

        assert got.status == 502
        assert client.sim.report().spent == {"graphql": 2}
        assert (await client.query(REVIEWS, owner=owner, name=name, pulls=50)).status == 200


async def test_an_exhausted_allowance_is_reported_with_a_200():
    async with simulated(limits=LimitSettings(graphql_quota=1)) as client:
        assert "data" in (await client.query("{ viewer { login } }")).json
        answers = [await client.query("{ viewer { login } }") for _ in range(20)]

        assert {got.status for got in answers} == {200}
        assert {got.json["errors"][0]["type"] for got in answers} == {"RATE_LIMITED", "RATE_LIMIT"}
        assert {got.remaining for got in answers} == {0}
        assert client.sim.report().violations == {"primary_exhausted": 20}


async def test_missing_nodes_are_null_with_an_error_and_the_rest_is_returned():
    async with simulated(repositories=2) as client:
        client.sim.mutate.take_down(client.repo(1))
        owner, blocked = client.repo(1).split("/")
        missing = 'a: repository(owner: "x", name: "y") { id }'
        refused = f'b: repository(owner: "{owner}", name: "{blocked}") {{ id }}'
        got = await client.query(f"{{ {missing} {refused} viewer {{ login nonsense }} }}")

        assert got.json["data"] == {"a": None, "b": None, "viewer": {"login": client.login, "nonsense": None}}
        assert [(e["type"], e["path"]) for e in got.json["errors"]] == [
            ("NOT_FOUND", ["a"]), ("FORBIDDEN", ["b"]), ("UNDEFINED_FIELD", ["viewer", "nonsense"]),
        ]  # fmt: skip


async def test_a_former_name_is_followed_and_nodes_are_found_by_id():
    async with simulated() as client:
        truth = client.sim.truth(client.login).repositories[0]
        owner, name = client.repo().split("/")
        client.sim.mutate.rename(client.repo(), "renamed")

        query = "query($o: String!, $n: String!) { repository(owner: $o, name: $n) { nameWithOwner } }"
        found = (await client.query(query, o=owner, n=name)).json["data"]
        assert found["repository"]["nameWithOwner"] == f"{client.login}/renamed"

        ids = [truth.pulls[0]["node_id"], truth.repository["node_id"], "R_nonsense"]
        shown = "__typename ... on PullRequest { number } ... on Repository { name }"
        query = f"query($ids: [ID!]!) {{ nodes(ids: $ids) {{ {shown} }} }}"
        assert (await client.query(query, ids=ids)).json["data"]["nodes"] == [
            {"__typename": "PullRequest", "number": truth.pulls[0]["number"]},
            {"__typename": "Repository", "name": "renamed"},
            None,
        ]


async def test_data_may_contain_nulls():
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.PARTIAL)
        owner, name = client.repo().split("/")
        got = await client.query(REVIEWS, owner=owner, name=name)

        nodes = got.json["data"]["repository"]["pullRequests"]["nodes"]
        assert nodes[-1] is None
        assert nodes[0] is not None
        assert got.json["errors"][0]["path"] == ["repository", "pullRequests", "nodes", len(nodes) - 1]


async def test_invalid_queries_are_reported():
    async with simulated() as client:
        assert "Parse error" in (await client.query("{ viewer ")).json["errors"][0]["message"]
        assert (await client.query("mutation { addStar { id } }")).json["errors"]
        assert (await client.ask("POST", "/graphql", data=b"hello")).json["errors"]
        assert (await client.ask("POST", "/graphql", token="", json={"query": "{ viewer { login } }"})).status == 401


def test_the_query_language_is_parsed():
    read = parse(
        'query Q($a: [Int!]! = [1, 2], $b: In) { x: y(a: $a, t: "q\\"uote", e: DESC, f: -1.5, n: null, o: {p: true}) }'
    )
    (field,) = read.selections

    assert read.defaults == {"a": [1, 2]}
    assert isinstance(field, Field)
    assert (field.alias, field.name) == ("x", "y")
    assert field.arguments == {
        "a": Variable("a"), "t": 'q"uote', "e": "DESC", "f": -1.5, "n": None, "o": {"p": True},
    }  # fmt: skip
    for nonsense in ("{", "query", "{ a(b) }", "{ a ~ }", "{ ... on }"):
        with pytest.raises(SyntaxProblem):
            parse(nonsense)
