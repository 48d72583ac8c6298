"""Asking only for what changed."""

from tests.simulators.github.client import simulated
from tidegate_simulators.github import Sizes


async def test_an_unchanged_page_costs_nothing_and_has_no_links():
    async with simulated(sizes=Sizes(issues=50)) as client:
        url = f"/repos/{client.repo()}/issues?state=all"
        first = await client.get(url)
        assert first.headers["etag"].startswith('W/"')
        assert first.links

        again = await client.get(url, If_None_Match=first.headers["etag"])

        assert (again.status, again.body) == (304, b"")
        assert again.remaining == first.remaining
        assert "link" not in again.headers
        assert again.headers["etag"] == first.headers["etag"]
        report = client.sim.report()
        assert (report.calls, report.not_modified, report.spent) == (2, 1, {"core": 1})


async def test_an_etag_belongs_to_one_token():
    async with simulated() as client:
        url = f"/repos/{client.repo()}"
        mine = await client.get(url)
        other = client.sim.token_of(client.login, 1)

        assert (await client.get(url, token=other)).headers["etag"] != mine.headers["etag"]
        assert (await client.get(url, token=other, If_None_Match=mine.headers["etag"])).status == 200


async def test_without_a_token_a_304_costs_a_call():
    async with simulated() as client:
        first = await client.get(f"/users/{client.login}", token="")
        again = await client.get(f"/users/{client.login}", token="", If_None_Match=first.headers["etag"])

        assert (again.status, again.remaining) == (304, first.remaining - 1)


async def test_a_change_gives_another_etag():
    async with simulated() as client:
        url = f"/repos/{client.repo()}/issues?state=all"
        before = await client.get(url)
        client.sim.mutate.open_issue(client.repo())
        after = await client.get(url, If_None_Match=before.headers["etag"])

        assert after.status == 200
        assert after.headers["etag"] != before.headers["etag"]


async def test_a_full_page_keeps_its_etag_when_the_next_one_appears():
    """The trap of lists in ascending order: 304 says that this page is the same, not that it is still the last."""
    async with simulated(sizes=Sizes(issues=30)) as client:
        url = f"/repos/{client.repo()}/issues?state=all&direction=asc"
        before = await client.get(url)
        assert not before.links
        client.sim.mutate.open_issue(client.repo())

        assert (await client.get(url, If_None_Match=before.headers["etag"])).status == 304
        assert "next" in (await client.get(url)).links


async def test_lists_have_no_last_modified_but_single_items_do():
    async with simulated() as client:
        repo = f"/repos/{client.repo()}"
        single = await client.get(repo)

        assert "last-modified" in single.headers
        assert "last-modified" not in (await client.get(f"{repo}/issues")).headers
        assert (await client.get(repo, If_Modified_Since=single.headers["last-modified"])).status == 304
        assert (await client.get(repo, If_Modified_Since="Mon, 01 Jan 2001 00:00:00 GMT")).status == 200


async def test_an_exhausted_window_refuses_even_free_requests():
    async with simulated() as client:
        first = await client.get(f"/users/{client.login}", token="")
        for _ in range(59):
            await client.get(f"/users/{client.login}", token="")

        got = await client.get(f"/users/{client.login}", token="", If_None_Match=first.headers["etag"])
        assert got.status in (403, 429)


async def test_timelines_have_a_poll_interval():
    async with simulated(events=10) as client:
        await client.get(f"/users/{client.login}/events")
        await client.get(f"/users/{client.login}/events?page=2")
        assert client.sim.report().polled_early == 0
        await client.get(f"/users/{client.login}/events")

        assert client.sim.report().polled_early == 1


async def test_a_second_reading_of_an_unchanged_account_costs_nothing():
    async with simulated(repositories=3, events=120) as client:
        urls = [f"/users/{client.login}", f"/users/{client.login}/repos", f"/users/{client.login}/events"]
        urls += [f"/repos/{client.repo(i)}/{what}" for i in range(3) for what in ("issues", "pulls", "commits")]
        marks = {url: (await client.get(url)).headers["etag"] for url in urls}
        spent = client.sim.report().spent

        statuses = {(await client.get(url, If_None_Match=mark)).status for url, mark in marks.items()}

        assert statuses == {304}
        assert client.sim.report().spent == spent
