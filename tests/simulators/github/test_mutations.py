"""A world that changes, also while it is being read."""

from datetime import timedelta

import pytest

from tests.simulators.github.client import Client, simulated
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.github import Behaviour, Sizes
from tidegate_simulators.github.draws import iso
from tidegate_simulators.github.mutations import OPERATIONS

SIZES = Sizes(issues=40, pulls=30, commits=60, issue_comments=30, review_comments=20, reviews=20)


def now(client: Client) -> str:
    return iso(int(client.clock.now().timestamp()))


async def test_a_new_issue_is_first_and_found_by_since():
    async with simulated(sizes=SIZES) as client:
        client.clock.advance(timedelta(hours=2))
        number = client.sim.mutate.open_issue(client.repo())

        issues = f"/repos/{client.repo()}/issues?state=all"
        assert (await client.get(issues)).json[0]["number"] == number == 71
        (found,) = (await client.get(f"{issues}&since={now(client)}")).json
        assert (found["number"], found["created_at"]) == (number, now(client))


async def test_changes_of_an_issue_update_its_updated_at():
    async with simulated(sizes=SIZES) as client:
        repo, pulls = client.repo(), [p["number"] for p in client.sim.truth(client.login).repositories[0].pulls]
        mutate = client.sim.mutate
        changes = (
            lambda: mutate.close(repo, 1), lambda: mutate.reopen(repo, 1), lambda: mutate.edit(repo, 1),
            lambda: mutate.comment(repo, 1), lambda: mutate.edit_comment(repo, 1),
            lambda: mutate.review(repo, pulls[0]), lambda: mutate.review_comment(repo, pulls[0]),
            lambda: mutate.merge(repo, pulls[0]),
        )  # fmt: skip
        for change in changes:
            client.clock.advance(timedelta(hours=1))
            change()
            newest = (await client.get(f"/repos/{repo}/issues?state=all&sort=updated&per_page=1")).json[0]
            assert newest["updated_at"] == now(client)

        merged = (await client.get(f"/repos/{repo}/pulls/{pulls[0]}")).json
        assert (merged["merged"], merged["merged_at"], merged["state"]) == (True, now(client), "closed")


async def test_old_commits_pushed_late_are_missed_by_since_but_reachable_from_the_head():
    async with simulated(sizes=SIZES) as client:
        commits = f"/repos/{client.repo()}/commits?per_page=100"
        known = {c["sha"] for c in await client.all(commits)}
        client.clock.advance(timedelta(days=1))
        since = now(client)
        client.clock.advance(timedelta(minutes=1))
        *late, merge = client.sim.mutate.push_late(client.repo(), count=3, days=60)

        assert [c["sha"] for c in await client.all(f"{commits}&since={since}")] == [merge]
        everything = await client.all(commits)
        assert everything[0]["sha"] == merge
        assert {c["sha"] for c in everything} == known | {*late, merge}
        dates = [c["commit"]["committer"]["date"] for c in everything]
        assert dates == sorted(dates, reverse=True)

        parents = [p["sha"] for p in everything[0]["parents"]]
        assert parents[1] == late[-1]
        branch = await client.all(f"{commits}&sha={late[-1]}")
        assert [c["sha"] for c in branch[:3]] == late[::-1]
        assert parents[0] not in {c["sha"] for c in branch}


async def test_new_commits_come_first_and_an_empty_repository_gets_its_first_one():
    async with simulated(sizes=Sizes()) as client:
        assert (await client.get(f"/repos/{client.repo()}/commits")).status == 409
        shas = client.sim.mutate.push(client.repo(), count=2)

        assert [c["sha"] for c in await client.all(f"/repos/{client.repo()}/commits")] == shas[::-1]


async def test_an_item_inserted_at_the_front_moves_numbered_pages_but_not_cursors():
    """With page numbers an item is seen twice; with cursors each is seen once."""
    async with simulated(sizes=SIZES) as client:
        pulls = f"/repos/{client.repo()}/pulls?state=all&per_page=10"
        issues = f"/repos/{client.repo()}/issues?state=all&per_page=10"
        first_pulls, first_issues = await client.get(pulls), await client.get(issues)
        client.clock.advance(timedelta(seconds=1))
        client.sim.mutate.open_pull(client.repo())

        second_pulls = await client.get(first_pulls.links["next"])
        second_issues = await client.get(first_issues.links["next"])
        assert second_pulls.json[0] == first_pulls.json[-1]
        assert first_issues.json[-1]["number"] == second_issues.json[0]["number"] + 1


async def test_an_item_removed_at_the_front_hides_one_behind_a_page_number():
    async with simulated(sizes=Sizes(issues=30)) as client:
        issues = f"/repos/{client.repo()}/issues?state=all&per_page=10"
        await client.get(issues)
        client.sim.mutate.delete_issue(client.repo(), 30)

        by_number = (await client.get(f"{issues}&page=2")).json
        assert by_number[0]["number"] == 19, "20 was on page 2 and is on page 1 now"


async def test_a_changing_world_changes_between_pages():
    async with simulated(sizes=SIZES, behaviour=Behaviour(restless=0.5)) as client:
        existed = {i["id"] for i in client.sim.truth(client.login).repositories[0].issues}
        seen = await client.all(f"/repos/{client.repo()}/issues?state=all&per_page=5")

        assert client.sim.report().mutations > 3
        assert existed <= {issue["id"] for issue in seen}
        assert len(client.sim.truth(client.login).repositories[0].issues) > len(existed)


async def test_actions_appear_in_the_timeline_with_a_delay():
    async with simulated(events=0) as client:
        client.sim.mutate.open_issue(client.repo())
        events = f"/users/{client.login}/events"
        assert (await client.get(events)).json == []

        client.clock.advance(timedelta(hours=7))
        (event,) = (await client.get(events)).json
        assert (event["type"], event["repo"]["name"]) == ("IssuesEvent", client.repo())
        client.clock.advance(timedelta(days=30))
        assert (await client.get(events)).json == []


async def test_changes_can_be_requested_by_name_through_the_control_api():
    async with simulated(sizes=SIZES) as client:
        asked = [{"op": "open_issue", "repo": client.repo()}, {"op": "star", "repo": client.repo(), "count": 5}]
        got = await client.ask("POST", "/_sim/mutate", json=asked)
        assert got.json == {"results": [71, None]}

        for wrong, status in (
            ({"op": "nonsense"}, 400),
            ({"op": "open_issue"}, 400),
            ({"op": "open_issue", "repo": "a/b"}, 404),
            ({"op": "close", "repo": client.repo(), "number": 999}, 404),
            ({"op": "push", "repo": client.repo(), "count": 0}, 400),
        ):
            assert (await client.ask("POST", "/_sim/mutate", json=wrong)).status == status


async def test_impossible_changes_are_refused():
    async with simulated() as client:
        mutate, repo = client.sim.mutate, client.repo()
        mutate.disable_issues(repo)
        with pytest.raises(InvalidArgument):
            mutate.open_issue(repo)
        with pytest.raises(InvalidArgument):
            mutate.transfer_issue(repo, 1, to=repo)
        with pytest.raises(InvalidArgument):
            mutate.rename_user(client.login, client.login)
        with pytest.raises(NotFound):
            mutate.edit_comment(repo, 99)
        assert all(callable(getattr(mutate, operation)) for operation in OPERATIONS)
