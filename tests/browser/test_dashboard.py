"""The dashboard in a real browser, on the live demo: what an operator sees change, and the actions for it."""

import re
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from examples.live.deployment import Deployment, open_deployment
from examples.live.upstreams import BROKEN_CHARACTER, Ration
from playwright.async_api import Locator, Page, expect

from tests.browser.chromium import Visitors, Watched
from tidegate_simulators import game
from tidegate_simulators.github import FaultKind

pytestmark = pytest.mark.asyncio(loop_scope="session")

RATION = Ration(quota=40, window_s=5, latency_ms=40)
MANY = 1_000
"""As often as it is tried."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def demo() -> AsyncGenerator[Deployment]:
    """The demo, prepared; nothing goes on in it but what a test begins. Nothing fails by itself."""
    async with open_deployment(ration=RATION) as deployment:
        deployment.upstreams.github.faults.clear()
        yield deployment


@pytest_asyncio.fixture(loop_scope="session")
async def watched(demo: Deployment) -> AsyncGenerator[Watched]:
    """No page may complain, or ask anybody but us; and nothing goes wrong any more once a test is over."""
    seen = Watched()
    yield seen
    demo.upstreams.github.faults.clear()
    assert seen.complaints == []
    assert {urlsplit(address).netloc for address in seen.addresses} == {urlsplit(demo.url).netloc}


async def opened(demo: Deployment, visitors: Visitors, watched: Watched, place: str = "#/") -> Page:
    page = await visitors.come(watched=watched, viewport={"width": 1280, "height": 900})
    await page.goto(f"{demo.url}/{place}")
    return page


async def begin(demo: Deployment, number: int) -> int:
    """A run of one of the demo's users."""
    login = demo.upstreams.github.world.logins()[number]
    status, run = await demo.api.ask("POST", "/v1/runs", {"login": login})
    assert status == 201, run
    return run["id"]


def tile(page: Page, label: str) -> Locator:
    """A figure of the overview, with what is said below it."""
    return (
        page.get_by_role("list", name="Current figures")
        .get_by_role("listitem")
        .filter(has=page.get_by_text(label, exact=True))
    )


async def confirm(page: Page, button: str) -> None:
    """Say yes to the question that is asked."""
    await page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_overview_updates_while_a_run_progresses(demo: Deployment, visitors: Visitors, watched: Watched):
    login = demo.upstreams.github.world.logins()[0]
    demo.upstreams.github.faults.inject(FaultKind.PENDING, times=MANY, route="user.events", contains=login)
    page = await opened(demo, visitors, watched)
    nothing = page.get_by_role("region", name="Active runs").get_by_text("No active runs")
    await expect(nothing).to_be_visible()
    await expect(tile(page, "Active runs").locator(".tile-value")).to_have_text("0")
    run = await begin(demo, 0)
    progress = page.get_by_role("table", name="Active runs").get_by_role("progressbar", name=f"Progress of run {run}")
    await expect(tile(page, "Active runs").locator(".tile-value")).to_have_text("1")
    await expect(progress).to_have_attribute("aria-valuenow", re.compile("[1-9]"))
    share = await progress.get_attribute("aria-valuenow") or ""
    completed = await tile(page, "Active runs").locator(".tile-note").inner_text()
    demo.upstreams.github.faults.clear()  # what it waited for is there
    await expect(nothing).to_be_visible()
    await expect(tile(page, "Active runs").locator(".tile-value")).to_have_text("0")
    await expect(tile(page, "Active runs").locator(".tile-note")).not_to_have_text(completed)
    status, ended = await demo.api.ask("GET", f"/v1/runs/{run}")
    assert (status, ended["status"]) == (200, "completed")
    assert 0 < int(share) <= ended["total_jobs"]


async def test_a_run_is_started_and_canceled(demo: Deployment, visitors: Visitors, watched: Watched):
    login = demo.upstreams.github.world.logins()[1]
    # So that it does not end before it is canceled.
    demo.upstreams.github.faults.inject(FaultKind.PENDING, times=MANY, contains=login)
    page = await opened(demo, visitors, watched, "#/runs")
    await page.get_by_role("button", name="Start a run").click()
    await page.get_by_role("dialog").get_by_role("textbox").first.fill(login)
    await confirm(page, "Start")
    await expect(page).to_have_url(re.compile(r"#/runs/\d+$"))
    await page.get_by_role("button", name="Cancel run").click()
    await confirm(page, "Cancel run")
    await expect(page.locator(".page-name .badge")).to_have_text("canceled")
    status, run = await demo.api.ask("GET", f"/v1/runs/{page.url.rpartition('/')[2]}")
    assert (status, run["status"]) == (200, "canceled")


async def test_runs_are_found_by_a_part_of_their_subject_and_by_time(
    demo: Deployment, visitors: Visitors, watched: Watched
):
    login, other = (demo.upstreams.github.world.logins()[number] for number in (4, 5))
    for number in (4, 5):
        await demo.api.until_over(await begin(demo, number))
    page = await opened(demo, visitors, watched, "#/runs")
    subjects = page.get_by_role("table", name="Runs").locator(".clip-name")
    others = subjects.filter(has_text=other)
    await expect(others.first).to_be_visible()
    await page.get_by_label("Search by subject").fill(login.upper())
    await expect(others).to_have_count(0)
    await expect(subjects.first).to_have_text(login)
    await page.reload()
    await expect(page.get_by_label("Search by subject")).to_have_value(login.upper())
    await expect(subjects.first).to_have_text(login)
    await expect(others).to_have_count(0)
    await page.get_by_label("Created").select_option("Last hour")
    await expect(page).to_have_url(re.compile("range=1h"))
    await expect(subjects.first).to_have_text(login)
    await page.get_by_label("Created").select_option("From and until…")
    await page.get_by_label("Until").fill("2020-01-01T00:00")
    await expect(page.get_by_text("No matching runs")).to_be_visible()
    await page.get_by_label("Created").select_option("Any time")
    await page.get_by_label("Search by subject").fill("%")
    await expect(page.get_by_text("No matching runs")).to_be_visible()


async def test_a_failed_job_is_retried(demo: Deployment, visitors: Visitors, watched: Watched):
    upstream = demo.upstreams.github
    owned = upstream.truth(upstream.world.logins()[2]).repositories
    broken = next(each.repository["id"] for each in owned if each.commits)
    as_often_as_it_is_tried = 2
    upstream.faults.inject(
        FaultKind.BAD_GATEWAY, times=as_often_as_it_is_tried, route="repo.commits", contains=f"/{broken}/"
    )
    run = await begin(demo, 2)
    await demo.api.until_over(run)
    page = await opened(demo, visitors, watched, f"#/runs/{run}")
    retry = page.get_by_role("table", name="Failed jobs").get_by_role("button", name=re.compile(r"Retry job \d+"))
    await expect(retry).to_have_count(1)
    await retry.click()
    await confirm(page, "Retry")
    await expect(page.get_by_role("table", name="Failed jobs")).to_have_count(0)
    status, detail = await demo.api.ask("GET", f"/v1/runs/{run}")
    assert (status, detail["failed_jobs"]) == (200, 0)


async def test_a_dead_letter_is_replayed(demo: Deployment, visitors: Visitors, watched: Watched):
    await demo.api.ask("GET", f"/v1/snapshots/character/{BROKEN_CHARACTER}")
    page = await opened(demo, visitors, watched, "#/dead/snapshots")
    letters = page.get_by_role("table", name="Dead letters: Snapshots")
    await expect(letters.get_by_text(f"character/{BROKEN_CHARACTER}")).to_be_visible()
    demo.upstreams.game.faults.clear()
    await letters.get_by_role("button", name=re.compile("^Replay letter")).click()
    await confirm(page, "Replay")
    await expect(page.get_by_text("No dead letters")).to_be_visible()
    status, found = await demo.api.ask("GET", f"/v1/snapshots/character/{BROKEN_CHARACTER}?wait=10")
    assert (status, found["freshness"]) == (200, "FRESH")


async def test_dead_letters_are_settled_by_group(demo: Deployment, visitors: Visitors, watched: Watched):
    for character in (21, 22, 23, 24):
        fault = game.FaultKind.BAD_REQUEST if character < 24 else game.FaultKind.INVALID
        demo.upstreams.game.faults.inject(fault, times=1, subject=character)
        await demo.api.ask("GET", f"/v1/snapshots/character/{character}")
    page = await opened(demo, visitors, watched, "#/dead/snapshots")
    groups = page.get_by_role("table", name="Groups of dead letters: Snapshots")
    refused = groups.get_by_role("row").filter(has_text="UPSTREAM_4XX")
    garbled = groups.get_by_role("row").filter(has_text="PARSE_ERROR")
    await expect(refused.get_by_role("cell", name="3", exact=True)).to_be_visible()
    await expect(garbled.get_by_role("cell", name="1", exact=True)).to_be_visible()
    await refused.get_by_role("button", name=re.compile("^Replay group")).click()
    await confirm(page, "Replay 3")
    await expect(refused).to_have_count(0)
    await garbled.get_by_role("button", name=re.compile("^Discard group")).click()
    await confirm(page, "Discard 1")
    await expect(page.get_by_text("No dead letters")).to_be_visible()
    status, found = await demo.api.ask("GET", "/v1/snapshots/character/22?wait=10")
    assert (status, found["freshness"]) == (200, "FRESH")


async def test_the_range_of_the_charts_survives_a_reload(demo: Deployment, visitors: Visitors, watched: Watched):
    page = await opened(demo, visitors, watched)
    ranges = page.get_by_role("group", name="Range of the charts")
    await expect(ranges.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
    async with page.expect_request(re.compile(r"/v1/history\?.*&since=")):
        await ranges.get_by_role("button", name="7 d").click()
    await page.reload()
    await expect(ranges.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    # The leader recorded the first points when the demo began.
    await expect(page.get_by_role("img", name=re.compile("^Jobs pending"))).to_be_visible()


async def test_a_quota_is_shown_exhausted_and_refilled(demo: Deployment, visitors: Visitors, watched: Watched):
    page = await opened(demo, visitors, watched, "#/quotas")
    runs = [await begin(demo, number) for number in range(3, 11)]
    allowance = page.get_by_role("table", name=re.compile("^Allowance of ")).first
    left = allowance.get_by_role("meter", name="Left of core")
    await expect(left).to_have_attribute("aria-valuenow", "0")
    await expect(allowance.get_by_text("exhausted")).to_be_visible()
    await expect(left).not_to_have_attribute("aria-valuenow", "0")
    await expect(page.get_by_role("img", name=re.compile("^core over time")).first).to_be_visible()
    for run in runs:
        await demo.api.ask("POST", f"/v1/runs/{run}/cancel")
    assert demo.upstreams.github.report().broken == 0
