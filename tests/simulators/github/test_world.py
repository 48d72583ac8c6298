"""A world out of a seed."""

from datetime import UTC, datetime

import pytest

from tests.simulators.github.client import SMALL, simulated
from tidegate.core.clock import ManualClock
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github import Sizes, World, WorldShape, truth
from tidegate_simulators.github.repository import Standing

EPOCH = datetime(2026, 6, 1, tzinfo=UTC)


def a_world(seed: int = 1, users: int = 40) -> World:
    return World(WorldShape(seed=seed, users=users, epoch=EPOCH), ManualClock(EPOCH))


def test_the_same_seed_gives_the_same_world_in_any_order_of_access():
    one, other = a_world(), a_world()
    logins = one.logins()[5:7]

    seen = [truth(one, login) for login in logins]
    seen_backwards = [truth(other, login) for login in reversed(logins)]

    assert seen == seen_backwards[::-1]


def test_another_seed_gives_another_world():
    one, other = a_world(seed=1), a_world(seed=2)

    assert one.logins() != other.logins()


def test_a_repository_has_exactly_the_configured_sizes():
    world = World(WorldShape(users=1, repositories=1, sizes=SMALL, quirks=False, epoch=EPOCH), ManualClock(EPOCH))
    found = truth(world, world.logins()[0]).repositories[0]

    assert len([issue for issue in found.issues if "pull_request" not in issue]) == SMALL.issues
    assert len(found.pulls) == SMALL.pulls
    assert len(found.commits) == SMALL.commits
    assert len(found.issue_comments) == SMALL.issue_comments
    assert len(found.review_comments) == SMALL.review_comments
    assert len(found.reviews) == SMALL.reviews


def test_pull_requests_are_among_the_issues_under_another_id():
    world = a_world()
    pairs = [
        (issue, pull)
        for login in world.logins()[4:7]
        for repository in truth(world, login).repositories
        for issue in repository.issues
        for pull in repository.pulls
        if issue["number"] == pull["number"]
    ]

    assert pairs
    for issue, pull in pairs:
        assert issue["pull_request"]["url"] == pull["url"]
        assert issue["id"] != pull["id"]
        assert (issue["state"], issue["updated_at"]) == (pull["state"], pull["updated_at"])


def test_related_data_is_consistent():
    """Counts are those of the lists; nothing is said before its issue was opened or after it was last updated."""
    world = a_world()
    checked = 0
    for login in world.logins()[4:7]:
        for repository in truth(world, login).repositories:
            by_url = {issue["url"]: issue for issue in repository.issues}
            for url, issue in by_url.items():
                said = [c for c in repository.issue_comments if c["issue_url"] == url]
                assert issue["comments"] == len(said)
                assert all(
                    issue["created_at"] <= c["created_at"] <= c["updated_at"] <= issue["updated_at"] for c in said
                )
                checked += len(said)
    assert checked > 50


@pytest.mark.full
def test_ids_are_unique_within_their_kind_and_may_collide_between_kinds():
    world = World(WorldShape(users=2, epoch=EPOCH), ManualClock(EPOCH))
    all_repositories = [r for login in world.logins() for r in truth(world, login).repositories]
    issues = [i["id"] for r in all_repositories for i in r.issues]
    pulls = [p["id"] for r in all_repositories for p in r.pulls]
    shas = [c["sha"] for r in all_repositories for c in r.commits]

    assert len(set(issues)) == len(issues)
    assert len(set(pulls)) == len(pulls)
    assert len(set(shas)) == len(shas)
    assert set(issues) & set(pulls)


def test_a_world_has_all_kinds_of_unusual_repositories():
    repositories = list(a_world(users=60).all_repositories())

    assert {r.standing for r in repositories} >= {
        Standing.PUBLIC, Standing.PRIVATE, Standing.TAKEN_DOWN, Standing.BLOCKED,
    }  # fmt: skip
    assert any(not r.has_issues for r in repositories)
    assert any(r.former_names for r in repositories)
    assert any(not len(r.history) for r in repositories)
    small = sum(r.sizes.issues < 60 for r in repositories)
    assert len(repositories) * 0.6 < small < len(repositories)


async def test_two_simulators_with_one_seed_send_the_same_bytes():
    bodies: list[bytes] = []
    for _ in range(2):
        async with simulated() as client:
            bodies.append((await client.get(f"/repos/{client.repo()}/issues?state=all")).body)

    assert bodies[0] == bodies[1]


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="users is 0"):
        WorldShape(users=0)
    with pytest.raises(InvalidArgument, match="issues is -1"):
        Sizes(issues=-1)
    with pytest.raises(NotFound):
        truth(a_world(), "nobody")
