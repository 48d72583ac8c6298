"""Everything that is not 200."""

import aiohttp
import pytest

from tests.simulators.github.client import Client, simulated
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, Sizes, WorldShape


async def test_a_port_in_use_is_refused_by_name():
    async with simulated() as client:
        port = int(client.sim.url.rpartition(":")[2])
        second = GithubSimulator(SimulatorConfig(port=port, world=WorldShape(users=1)))
        with pytest.raises(InvalidArgument, match=f"port is {port}: cannot listen there"):
            await second.start()


async def test_a_former_name_is_redirected_to_the_id():
    async with simulated() as client:
        old = client.repo()
        number = (await client.get(f"/repos/{old}")).json["id"]
        client.sim.mutate.rename(old, "other-name")

        got = await client.get(f"/repos/{old}/issues?state=all&per_page=5")

        target = f"{client.sim.url}/repositories/{number}/issues?state=all&per_page=5"
        assert (got.status, got.headers["location"], got.json["url"]) == (301, target, target)
        assert got.json["message"] == "Moved Permanently"
        assert len((await client.get(target)).json) == 5
        assert (await client.get(f"/repositories/{number}")).json["full_name"] == f"{client.login}/other-name"
        assert (await client.ask("POST", f"/repos/{old}/issues", json={})).status == 307


async def test_a_transferred_repository_is_redirected_too():
    async with simulated(users=2) as client:
        old, other = client.repo(), client.sim.world.logins()[1]
        client.sim.mutate.transfer(old, other)

        target = (await client.get(f"/repos/{old}")).headers["location"]
        assert (await client.get(target)).json["owner"]["login"] == other
        assert len(await client.all(f"/users/{other}/repos")) == 2


async def test_a_renamed_user_is_found_by_id_only():
    async with simulated() as client:
        number = (await client.get(f"/users/{client.login}")).json["id"]
        repo = client.repo()
        client.sim.mutate.rename_user(client.login, "new-tide")

        assert (await client.get(f"/users/{client.login}")).status == 404
        assert (await client.get(f"/user/{number}")).json["login"] == "new-tide"
        assert (await client.get(f"/repos/{repo}")).status == 301


async def test_private_resources_are_not_found():
    async with simulated(repositories=2) as client:
        repo = client.repo()
        client.sim.mutate.make_private(repo)

        got = await client.get(f"/repos/{repo}/issues")
        assert (got.status, got.json["message"]) == (404, "Not Found")
        assert len((await client.get(f"/users/{client.login}/repos")).json) == 1

        client.sim.mutate.make_private(repo, still_listed=True)
        assert len((await client.get(f"/users/{client.login}/repos")).json) == 2, "lists may be behind"


async def test_an_empty_repository_has_no_commits_and_no_contributors():
    async with simulated(sizes=Sizes()) as client:
        commits = await client.get(f"/repos/{client.repo()}/commits")

        assert (commits.status, commits.json["message"]) == (409, "Git Repository is empty.")
        assert (await client.get(f"/repos/{client.repo()}/contributors")).status == 204
        assert (await client.get(f"/repos/{client.repo()}/issues")).json == []


async def test_disabled_issues_are_gone_but_pull_requests_are_not():
    async with simulated() as client:
        client.sim.mutate.disable_issues(client.repo())

        got = await client.get(f"/repos/{client.repo()}/issues")
        assert (got.status, got.json["message"]) == (410, "Issues are disabled for this repo")
        assert (await client.get(f"/repos/{client.repo()}/pulls?state=all")).json
        assert (await client.get(f"/repos/{client.repo()}")).json["has_issues"] is False


async def test_taken_down_and_blocked_repositories_say_so_and_are_no_rate_limit():
    async with simulated() as client:
        client.sim.mutate.take_down(client.repo())
        taken_down = await client.get(f"/repos/{client.repo()}/commits")
        client.sim.mutate.block(client.repo())
        blocked = await client.get(f"/repos/{client.repo()}/commits")

        assert (taken_down.status, taken_down.json["block"]["reason"]) == (451, "dmca")
        assert (blocked.status, blocked.json["message"]) == (403, "Repository access blocked")
        assert blocked.remaining > 0
        assert "retry-after" not in blocked.headers
        assert client.sim.report().refused == 0


async def test_a_deleted_issue_is_gone_and_a_transferred_one_is_redirected():
    async with simulated(repositories=2, sizes=Sizes(issues=4, issue_comments=20)) as client:
        here, there = client.repo(0), client.repo(1)
        client.sim.mutate.delete_issue(here, 1)
        number = client.sim.mutate.transfer_issue(here, 2, to=there)

        deleted = await client.get(f"/repos/{here}/issues/1")
        assert (deleted.status, deleted.json["message"]) == (410, "This issue was deleted")
        moved = await client.get(f"/repos/{here}/issues/2")
        assert moved.status == 301
        assert (await client.get(moved.headers["location"])).json["number"] == number == 5
        assert {i["number"] for i in await client.all(f"/repos/{here}/issues?state=all")} == {3, 4}
        left = await client.all(f"/repos/{here}/issues/comments")
        assert {c["issue_url"].rpartition("/")[2] for c in left} <= {"3", "4"}
        assert (await client.get(f"/repos/{here}/issues/99")).status == 404


async def test_statistics_are_computed_after_the_first_request():
    async with simulated() as client:
        url = f"/repos/{client.repo()}/stats/contributors"

        assert [(await client.get(url)).status for _ in range(2)] == [202, 200]


async def test_stargazers_are_forbidden_to_other_users():
    async with simulated() as client:
        unknown_caller = client.sim.token_of(client.sim.world.operators()[0])
        assert (await client.get(f"/repos/{client.repo()}/stargazers", token=unknown_caller)).status == 403
        assert (await client.get(f"/repos/{client.repo()}/stargazers")).status == 200, "the owner may"
        assert (await client.get(f"/repos/{client.repo()}/subscribers")).status == 403
        assert (await client.get(f"/repos/{client.repo()}")).json["stargazers_count"] > 0


async def test_single_items_can_be_requested():
    async with simulated() as client:
        repo, truth = f"/repos/{client.repo()}", client.sim.truth(client.login).repositories[0]
        pull, commit = truth.pulls[0], truth.commits[3]

        assert (await client.get(f"{repo}/issues/{truth.issues[0]['number']}")).json == truth.issues[0]
        assert (await client.get(f"{repo}/pulls/{pull['number']}")).json.items() >= pull.items()
        whole = (await client.get(f"{repo}/commits/{commit['sha']}")).json
        assert whole.items() >= commit.items()
        assert whole["stats"]["additions"] == sum(file["additions"] for file in whole["files"])
        assert (await client.get(f"{repo}/commits/{'0' * 40}")).status == 422
        reviews = [await client.all(f"{repo}/pulls/{p['number']}/reviews") for p in truth.pulls]
        assert sorted(r["id"] for group in reviews for r in group) == sorted(r["id"] for r in truth.reviews)


async def unknown(client: Client, path: str) -> bool:
    return (await client.get(path)).status == 404


async def test_unknown_resources_are_not_found():
    async with simulated() as client:
        for path in ("/", "/nonsense", "/users/nobody", "/user/1", "/repos/a/b", "/repositories/5", "/repositories/x"):
            assert await unknown(client, path), path
        assert await unknown(client, f"/repos/{client.repo()}/nonsense")
        assert await unknown(client, f"/repos/{client.repo()}/issues/x")


async def test_a_call_without_a_user_agent_is_forbidden():
    async with (
        simulated() as client,
        aiohttp.ClientSession(skip_auto_headers=["User-Agent"]) as session,
        session.get(f"{client.sim.url}/users/{client.login}") as answer,
    ):
        assert answer.status == 403
        assert "User-Agent" in await answer.text()
        assert "x-ratelimit-limit" not in answer.headers
