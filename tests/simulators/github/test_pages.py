"""Lists, page by page."""

from tests.simulators.github.client import simulated
from tidegate_simulators.github import Behaviour, Sizes

MANY = Sizes(issues=150, pulls=110, commits=230, issue_comments=205, review_comments=120)


async def test_a_page_has_thirty_items_by_default_and_at_most_a_hundred():
    async with simulated(sizes=MANY) as client:
        url = f"/repos/{client.repo()}/issues?state=all"

        assert len((await client.get(url)).json) == 30
        assert len((await client.get(url + "&per_page=500")).json) == 100
        assert len((await client.get(url + "&per_page=nonsense")).json) == 30


async def test_the_issues_list_uses_cursors_and_has_no_last_link():
    async with simulated(sizes=MANY) as client:
        got = await client.get(f"/repos/{client.repo()}/issues?state=all&per_page=100")

        assert set(got.links) == {"next"}
        assert "page=2&after=" in got.links["next"]
        repository_id = (await client.get(f"/repos/{client.repo()}")).json["id"]
        assert f"/repositories/{repository_id}/issues?" in got.links["next"]
        assert "state=all&per_page=100" in got.links["next"]


async def test_following_the_links_gives_every_item_once():
    async with simulated(sizes=MANY) as client:
        truth = client.sim.truth(client.login).repositories[0]
        repo = f"/repos/{client.repo()}"

        assert sorted(i["number"] for i in await client.all(f"{repo}/issues?state=all&per_page=70")) == list(
            range(1, 261)
        )
        assert await client.all(f"{repo}/pulls?state=all&per_page=40&direction=asc") == truth.pulls
        assert await client.all(f"{repo}/commits?per_page=100") == truth.commits
        assert await client.all(f"{repo}/issues/comments?per_page=99") == truth.issue_comments
        assert await client.all(f"{repo}/pulls/comments") == truth.review_comments


async def test_the_page_before_a_cursor_is_the_previous_page():
    async with simulated(sizes=MANY) as client:
        first = await client.get(f"/repos/{client.repo()}/issues?state=all&per_page=50")
        second = await client.get(first.links["next"])
        back = await client.get(second.links["prev"])

        assert back.json == first.json


async def test_numbered_lists_have_first_and_last_links():
    async with simulated(sizes=MANY) as client:
        got = await client.get(f"/repos/{client.repo()}/commits?per_page=100&page=2")

        assert {relation: url.rpartition("page=")[2] for relation, url in got.links.items()} == {
            "prev": "1", "next": "3", "last": "3", "first": "1",
        }  # fmt: skip
        last = await client.get(got.links["last"])
        assert len(last.json) == 30
        assert "next" not in last.links
        assert (await client.get(f"/repos/{client.repo()}/commits?per_page=100&page=9")).json == []


async def test_page_numbers_do_not_reach_beyond_ten_thousand_items():
    async with simulated(sizes=Sizes(issues=10_150)) as client:
        url = f"/repos/{client.repo()}/issues?state=all&per_page=100"

        assert (await client.get(url + "&page=99")).status == 200
        refused = await client.get(url + "&page=100")
        assert refused.status == 422
        assert refused.json["message"].startswith(
            "Pagination with the page parameter is not supported for large datasets"
        )

        before = await client.get(url + "&page=99")
        beyond = await client.get(before.links["next"])
        assert beyond.status == 200, "a cursor reaches further"


async def test_where_cursors_end_the_rest_is_reached_by_since():
    behaviour = Behaviour(largest_page_offset=200, cursors_reach_everything=False)
    async with simulated(sizes=MANY, behaviour=behaviour) as client:
        url = f"/repos/{client.repo()}/issues?state=all&per_page=100&sort=updated&direction=asc"
        first = await client.get(url)
        assert (await client.get(first.links["next"])).status == 422

        seen: set[int] = set()
        since = "2000-01-01T00:00:00Z"
        while True:
            page = (await client.get(f"{url}&since={since}")).json
            seen |= {issue["number"] for issue in page}
            if len(page) < 100:
                break
            since = page[-1]["updated_at"]
        assert seen == set(range(1, 261))


async def test_since_is_inclusive_and_compares_updated_at():
    async with simulated(sizes=MANY) as client:
        repo = f"/repos/{client.repo()}"
        truth = client.sim.truth(client.login).repositories[0]
        for path, items in (("issues", truth.issues), ("issues/comments", truth.issue_comments)):
            moment = sorted(item["updated_at"] for item in items)[len(items) // 2]
            found = await client.all(f"{repo}/{path}?state=all&per_page=100&since={moment}")

            wanted = {item["id"] for item in items if item["updated_at"] >= moment}
            assert {item["id"] for item in found} == wanted
            assert moment in {item["updated_at"] for item in found}


async def test_pull_requests_have_no_since_but_can_be_sorted_by_update():
    async with simulated(sizes=MANY) as client:
        pulls = f"/repos/{client.repo()}/pulls?state=all&per_page=100"

        assert (await client.get(pulls + "&since=2100-01-01T00:00:00Z")).json
        updated = [p["updated_at"] for p in await client.all(pulls + "&sort=updated&direction=desc")]
        assert updated == sorted(updated, reverse=True)


async def test_commits_are_filtered_by_the_committer_date():
    async with simulated(sizes=MANY) as client:
        commits = client.sim.truth(client.login).repositories[0].commits
        dates = sorted(c["commit"]["committer"]["date"] for c in commits)
        assert any(c["commit"]["author"]["date"] < c["commit"]["committer"]["date"] for c in commits)

        found = await client.all(f"/repos/{client.repo()}/commits?per_page=100&since={dates[50]}&until={dates[150]}")

        assert {c["sha"] for c in found} == {
            c["sha"] for c in commits if dates[50] <= c["commit"]["committer"]["date"] <= dates[150]
        }


async def test_only_open_issues_are_listed_by_default():
    async with simulated(sizes=MANY) as client:
        states = {issue["state"] for issue in await client.all(f"/repos/{client.repo()}/issues")}

        assert states == {"open"}
        for nonsense in ("state=ajar", "since=yesterday", "sort=beauty", "direction=up", "after=nowhere"):
            assert (await client.get(f"/repos/{client.repo()}/issues?{nonsense}")).status == 422


async def test_links_of_lists_of_a_user_contain_the_user_id():
    async with simulated(repositories=40) as client:
        got = await client.get(f"/users/{client.login}/repos?per_page=25")
        number = (await client.get(f"/users/{client.login}")).json["id"]

        assert got.links["next"].startswith(f"{client.sim.url}/user/{number}/repos?")
        assert len(await client.all(f"/users/{client.login}/repos?per_page=25")) == 40
        assert (await client.get(f"/user/{number}")).json["login"] == client.login


async def test_events_end_after_three_hundred():
    async with simulated(events=400) as client:
        got = await client.get(f"/users/{client.login}/events?per_page=100")
        assert got.headers["x-poll-interval"] == "60"
        assert (await client.get(f"/users/{client.login}/events/public?per_page=100&page=3")).status == 200
        refused = await client.get(f"/users/{client.login}/events?per_page=100&page=4")

        assert refused.status == 422
        assert "pagination is limited for this resource" in refused.json["message"]
        assert len(await client.all(f"/users/{client.login}/events?per_page=100")) == 300


async def test_search_returns_at_most_a_thousand_results():
    async with simulated(sizes=Sizes(issues=1_100)) as client:
        got = await client.get(f"/search/issues?q=repo:{client.repo()}+is:issue&per_page=100")

        assert got.json["total_count"] == 1_100
        assert got.json["incomplete_results"] in (True, False)
        assert got.links["last"].endswith("page=10")
        assert (await client.get(f"/search/issues?q=repo:{client.repo()}&per_page=100&page=11")).status == 422
        assert (await client.get("/search/issues?q=")).status == 422


async def test_commits_and_files_of_a_pull_request_are_truncated():
    async with simulated(sizes=Sizes(pulls=300)) as client:
        repo = f"/repos/{client.repo()}"
        whole = [(await client.get(f"{repo}/pulls/{number}")).json for number in range(1, 301)]
        large = next(pull for pull in whole if pull["commits"] > 250)
        wide = next(pull for pull in whole if pull["changed_files"] > 3_000)

        assert len(await client.all(f"{repo}/pulls/{large['number']}/commits?per_page=100")) == 250
        assert len(await client.all(f"{repo}/pulls/{wide['number']}/files?per_page=100")) == 3_000
