"""`/v1/crawl`: crawls are begun, what comes of them is shown, and what identities send is told to nobody."""

import json
from collections.abc import AsyncGenerator
from io import StringIO
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import update

from tests.docs.pages import ROOT
from tests.http.serving import Client, Served, served
from tests.http.test_guide import assert_fits, request_of, shown_in
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl.raws import RawState
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.stages import SEARCH
from tidegate.systems.crawl.tables import crawl_raws
from tidegate_simulators.marketplace import MarketplaceConfig, MarketplaceSimulator, WorldShape

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE = ROOT / "docs" / "guides" / "crawl.md"
SECRET = "sid-that-nobody-may-see"
HEADERS = {"User-Agent": f"Agent/{SECRET}", "Cookie": f"sid={SECRET}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sim() -> AsyncGenerator[MarketplaceSimulator]:
    async with MarketplaceSimulator(MarketplaceConfig(world=WorldShape(products=3, keywords=2))) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    """A server that works, and that need not pause between two calls."""
    crawl = CrawlSettings.model_validate({"delay": 0})
    async with served(tmp_path_factory.mktemp("crawl"), users=1, has_token=False, crawl=crawl) as started:
        yield started


def wanted(sim: MarketplaceSimulator, name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": sim.url, "keywords": ["lantern", "rope"], **more}


async def crawled(client: Client, sim: MarketplaceSimulator, name: str) -> int:
    """A crawl that is over."""
    begun = await client.post("/v1/crawl/runs", wanted(sim, name))
    assert begun.status == 201, begun
    over = await client.until_over(begun.json["id"])
    assert (over["status"], over["failed_jobs"]) == ("completed", 0)
    return begun.json["id"]


def bury(tx: Transaction, run_id: int) -> int:
    """As if the answers of a run could not have been applied."""
    dead = {"state": RawState.FAILED, "attempts": 5, "reason": "ValueError: no such price"}
    those = (crawl_raws.c.run_id == run_id, crawl_raws.c.stage != SEARCH)
    return tx.execute(update(crawl_raws).where(*those).values(dead)).rowcount


async def test_a_crawl_is_started_and_its_results_are_shown(deployment: Served, sim: MarketplaceSimulator):
    client, host = deployment.client, sim.url.removeprefix("http://")

    begun = await client.post("/v1/crawl/runs", wanted(sim, "daily"))
    run_id = begun.json["id"]
    assert (begun.status, begun.headers["Location"]) == (201, f"/v1/runs/{run_id}")
    assert (begun.json["user_id"], begun.json["login"], begun.json["source"]) == ("daily", host, "crawl")
    over = await client.until_over(run_id)
    assert (over["status"], over["succeeded_jobs"]) == ("completed", 11)

    first = await client.get("/v1/crawl/products", params={"host": host, "limit": "2"})
    rest = await client.get(first.json["next"])
    shown = [*first.json["products"], *rest.json["products"]]
    assert {int(each["product_id"]) for each in shown} == set(sim.all_truth())
    assert rest.json["next"] is None
    one = await client.get(f"/v1/crawl/products/{host}/{shown[0]['product_id']}")
    assert one.json == shown[0]

    [met] = [each for each in (await client.get("/v1/crawl/hosts")).json["hosts"] if each["host"] == host]
    assert (met["robots"], met["crawl_delay_ms"], met["rests_until"]) == ("read", 0, None)
    jobs = (await client.get(f"/v1/runs/{run_id}/jobs?limit=1")).json["jobs"]
    executions = (await client.get(f"/v1/jobs/{jobs[0]['id']}/executions")).json["executions"]
    assert executions[-1]["outcome"] == "succeeded", executions
    assert {each["credential"] for each in executions} == {"crawl:tidegate"}
    assert (await client.get("/v1/jobs/999999/executions")).problem == "not-found"


@pytest.mark.full
async def test_robots_txt_is_read_again_on_request(deployment: Served, sim: MarketplaceSimulator):
    client, host = deployment.client, sim.url.removeprefix("http://")
    await crawled(client, sim, "before")

    told = await client.post(f"/v1/crawl/hosts/{host}/reread")
    assert (told.status, told.json["robots"], told.json["read_at"]) == (200, "unknown", None)
    await crawled(client, sim, "after")

    [met] = [each for each in (await client.get("/v1/crawl/hosts")).json["hosts"] if each["host"] == host]
    assert met["robots"] == "read"
    assert (await client.post("/v1/crawl/hosts/nowhere.example/reread")).problem == "not-found"


async def test_stored_answers_are_listed_and_dead_letters_replayed_one_by_one_or_all(
    deployment: Served, sim: MarketplaceSimulator
):
    client, database = deployment.client, deployment.collection.parts.database
    await crawled(client, sim, "letters")
    run_id = (await client.get("/v1/crawl/raws?limit=1")).json["raws"][0]["run_id"]
    buried = await database.transaction(bury, run_id)

    page = (await client.get(f"/v1/crawl/raws?state=failed&run={run_id}&limit=2")).json
    letter = page["raws"][0]
    assert (letter["reason"], letter["attempts"]) == ("ValueError: no such price", 5)
    assert len((await client.get(page["next"])).json["raws"]) == 2
    assert (await client.get(f"/v1/crawl/raws/{letter['id']}")).json == letter
    replayed = await client.post(f"/v1/crawl/raws/{letter['id']}/replay")
    again = await client.post(f"/v1/crawl/raws/{letter['id']}/replay")
    every = await client.post("/v1/crawl/dead/replay")

    assert replayed.json == {"id": letter["id"], "outcome": "replayed"}
    assert (again.status, again.problem) == (404, "not-found")
    assert every.json == {"replayed": buried - 1, "refused": []}
    assert (await client.get("/v1/crawl/raws/999999")).status == 404


async def test_a_schedule_is_stored_shown_and_triggered_once_per_key(deployment: Served, sim: MarketplaceSimulator):
    client = deployment.client
    plan = wanted(sim, "nightly", cron="0 3 * * *", timezone="Europe/Berlin", pages=2)

    added = await client.post("/v1/crawl/schedules", plan)
    again = await client.post("/v1/crawl/schedules", plan | {"pages": 3})
    listed = await client.get("/v1/crawl/schedules")
    fired = [await client.post(f"{added.headers['Location']}/trigger", {"key": "k"}) for _ in range(2)]

    assert (added.status, again.json["id"]) == (201, added.json["id"])
    assert [each["options"]["pages"] for each in listed.json["schedules"]] == [3]
    assert (await client.get(f"/v1/crawl/schedules?after={added.json['id']}")).json == {"schedules": []}
    assert len({each.json["run_id"] for each in fired}) == 1
    await client.until_over(fired[0].json["run_id"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": "shop.example"}, "url"),
        ({"url": "http://shop.example/page"}, "url"),
        ({"url": "http://169.254.169.254"}, "url"),
        ({"url": "http://localhost:6379"}, "url"),
        ({"keywords": []}, "keywords"),
        ({"keywords": [" a"]}, "keyword"),
        ({"name": "a b"}, "name"),
        ({"site": "nosuch"}, "site"),
        ({"pages": 0}, "pages"),
        ({"robots": False}, "robots"),
    ],
)
async def test_an_impossible_crawl_is_refused(
    deployment: Served, sim: MarketplaceSimulator, change: dict[str, Any], field: str
):
    refused = await deployment.client.post("/v1/crawl/runs", wanted(sim, "wrong") | change)

    assert (refused.status, refused.problem) == (422, "invalid"), refused
    assert refused.json.get("field") == field


async def test_headers_of_identities_are_accepted_and_never_returned(
    deployment: Served, sim: MarketplaceSimulator, logged: StringIO
):
    client, place = deployment.client, "/v1/crawl/identities/night"
    bad: list[Any] = [
        {"headers": HEADERS | {"Cookie": f"{SECRET}\n"}},
        {"headers": HEADERS | {"Cookie": [SECRET]}},
        {"headers": {"Cookie": SECRET}},
        {"headers": HEADERS | {"Host": SECRET}},
        {"headers": HEADERS | {"user-agent": SECRET}},
        {"headers": {}},
        HEADERS,
    ]
    refused = [await client.ask("PUT", place, json=body) for body in bad]
    broken = json.dumps({"headers": HEADERS}).encode()[:-4]
    typed = {"Content-Type": "application/json"}
    refused.append(await client.ask("PUT", place, data=broken, headers=typed))
    assert {each.status for each in refused} <= {400, 422}, refused

    put = await client.ask("PUT", place, json={"headers": HEADERS})
    assert (put.status, put.json["name"], put.json["enabled"]) == (200, "night", True)
    run_id = await crawled(client, sim, "by-night")
    jobs = (await client.get(f"/v1/runs/{run_id}/jobs?limit=1")).json["jobs"]
    executions = await client.get(f"/v1/jobs/{jobs[0]['id']}/executions")
    assert executions.json["executions"][-1]["credential"] == "crawl:night"
    told = [put, executions, *refused]
    told += [await client.get(path) for path in (place, "/v1/crawl/identities", "/v1/quotas", "/metrics")]
    disabled = await client.post(f"{place}/disable")
    nobody = await client.post("/v1/crawl/runs", wanted(sim, "nobody"))
    enabled = await client.post(f"{place}/enable")
    removed = await client.ask("DELETE", place)
    gone = await client.get(place)
    told += [disabled, nobody, enabled, removed, gone, await client.get("/v1/crawl/identities")]

    assert (disabled.json["enabled"], enabled.json["enabled"], removed.json["outcome"]) == (False, True, "removed")
    assert (nobody.status, nobody.problem) == (409, "no-credential")
    assert "all identities are disabled" in nobody.json["detail"]
    assert gone.status == 404
    assert [each["built_in"] for each in told[-1].json["identities"]] == [True]
    everything = b"".join(each.body + repr(dict(each.headers)).encode() for each in told)
    assert SECRET.encode() not in everything
    assert "crawl.identity_added" in logged.getvalue()
    assert SECRET not in logged.getvalue()


async def test_an_active_crawl_is_named(deployment: Served, sim: MarketplaceSimulator):
    client = deployment.client
    await client.ask("PUT", "/v1/crawl/identities/idle", json={"headers": {"User-Agent": "Idle/1"}})
    begun = await client.post("/v1/crawl/runs", {"name": "lost", "url": "http://127.0.0.1:1", "keywords": ["a"]})
    second = await client.post("/v1/crawl/runs", {"name": "lost", "url": "http://127.0.0.1:1", "keywords": ["a"]})
    await client.post(f"/v1/runs/{begun.json['id']}/cancel")
    await client.ask("DELETE", "/v1/crawl/identities/idle")

    assert (second.status, second.problem, second.json["run_id"]) == (409, "run-active", begun.json["id"])


@pytest.mark.full
async def test_the_requests_of_the_guide_have_its_responses(deployment: Served, sim: MarketplaceSimulator):
    client, shown = deployment.client, shown_in(GUIDE, "curl")
    assert len(shown) >= 6
    await crawled(client, sim, "guide")
    for each in shown:
        method, path, body, headers = request_of(each.words)
        body = None if body is None else body.replace(b"http://127.0.0.1:9001", sim.url.encode())
        answer = await client.ask(method, path, data=body, headers=headers)
        assert answer.status in (200, 201), (path, answer)
        assert_fits(msgspec.json.decode(each.output[0]), answer.json)
        if path == "/v1/crawl/runs":
            await client.until_over(answer.json["id"])
    await client.ask("DELETE", "/v1/crawl/identities/night")
