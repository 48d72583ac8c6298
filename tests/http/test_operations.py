"""For the machines that look after a process: alive, ready, and in figures."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from tests.http.serving import Client, Served, served
from tests.servers.proxy import Proxy
from tests.servers.sql import sql_server
from tests.servers.valkey import ValkeyServer, free_ports
from tidegate import __version__
from tidegate.collect import runs
from tidegate.collect.runs import Beginning
from tidegate.collect.source import JobSpec, Subject
from tidegate.http import Binding, serve_operations
from tidegate.settings.http import HttpSettings
from tidegate.simulators.github import Manners

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST = JobSpec(kind="USER_BASIC", resource="user:ada")
OF_THE_SPEC = {
    "collection_runs_active",
    "page_jobs_pending",
    "page_jobs_failed_rate",
    "job_processing_time",
    "delayed_queue_size",
    "stream_pending_count",
    "stream_consumer_lag",
    "rate_limit_tokens_blocked",
    "xautoclaim_recovered",
    "stats_retry_queue_size",
    "scheduler_sleep_duration",
    "scheduler_leader_active",
}


@dataclass(frozen=True)
class Cut:
    """A deployment whose wires to both servers can be cut."""

    served: Served
    valkey: Proxy
    database: Proxy

    @property
    def client(self) -> Client:
        return self.served.client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wired(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cut]:
    [port] = free_ports(1)
    postgres = sql_server("postgres")
    async with AsyncExitStack() as stack:
        stack.enter_context(ValkeyServer(port=port))
        to_valkey = await stack.enter_async_context(Proxy(port))
        to_database = await stack.enter_async_context(Proxy(postgres.port))
        name = await stack.enter_async_context(postgres.database())
        started = await stack.enter_async_context(
            served(
                tmp_path_factory.mktemp("wired"),
                valkey_url=f"redis://127.0.0.1:{to_valkey.port}",
                database_url=postgres.url(name, port=to_database.port),
            )
        )
        yield Cut(started, to_valkey, to_database)


async def figures(client: Client) -> dict[str, float]:
    """Every sample of /metrics, by its name and labels as they are written."""
    answer = await client.get("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


async def until_ready(client: Client) -> None:
    async with asyncio.timeout(30):
        while (await client.get("/readyz")).status != 200:
            await asyncio.sleep(0.1)


async def test_a_process_that_lives_says_so(deployment: Served):
    assert (await deployment.client.get("/healthz")).json == {"status": "ok", "version": __version__}
    assert (await deployment.client.ask("HEAD", "/healthz")).body == b""


async def test_a_process_is_ready_while_both_servers_answer(deployment: Served):
    ready = await deployment.client.get("/readyz")

    assert (ready.status, ready.json) == (200, {"ready": True, "checks": {"database": True, "valkey": True}})


async def test_every_metric_of_the_specification_is_told_by_its_name(deployment: Served):
    await deployment.collect(deployment.logins[0])

    answer = await deployment.client.get("/metrics")

    families = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert OF_THE_SPEC - families == set()


async def test_the_figures_are_those_of_the_deployment(deployment: Served):
    await deployment.collect(deployment.logins[1])
    await asyncio.sleep(1.6)  # figures are kept for a moment

    told = await figures(deployment.client)

    assert (told["collection_runs_active"], told["page_jobs_pending"], told["page_jobs_failed_rate"]) == (0, 0, 0)
    assert (told["stream_pending_count jobs"], told["stream_consumer_lag jobs"]) == (0, 0)
    assert told["rate_limit_tokens_blocked shard-0"] == 0
    assert told["scheduler_leader_active"] == 1
    assert told["job_processing_time_count REPO_ISSUES"] >= 1
    assert told["job_processing_time_bucket REPO_ISSUES 30.0"] == told["job_processing_time_count REPO_ISSUES"]
    assert (
        told["metrics_source_up database"] == told["metrics_source_up gate"] == told["metrics_source_up streams"] == 1
    )
    assert told["http_requests_total POST /v1/runs 201"] >= 1


async def test_without_valkey_it_lives_is_not_ready_and_tells_what_it_can(wired: Cut):
    client = wired.client
    await until_ready(client)
    assert (await figures(client))["stream_pending_count jobs"] == 0
    await wired.valkey.refuse()
    await asyncio.sleep(1.6)  # what was found a moment ago is told once more
    try:
        began = time.monotonic()
        ready = await client.get("/readyz")
        assert time.monotonic() - began < 3
        told = await figures(client)
        assert time.monotonic() - began < 6
        alive = await client.get("/healthz")
    finally:
        await wired.valkey.listen()

    assert (ready.status, ready.problem, ready.json["detail"]) == (503, "unavailable", "away: valkey")
    assert alive.status == 200
    assert (told["metrics_source_up gate"], told["metrics_source_up streams"]) == (0, 0)
    assert told["metrics_source_up database"] == 1
    unknown = [name for name, value in told.items() if value != value]
    assert {"stream_pending_count jobs", "delayed_queue_size shard-0", "rate_limit_tokens_blocked shard-0"} <= set(
        unknown
    )
    assert told["collection_runs_active"] == 0
    await until_ready(client)
    await asyncio.sleep(1.6)
    assert (await figures(client))["stream_pending_count jobs"] == 0


async def test_without_valkey_a_run_is_shown_and_what_it_waits_for_is_not_known(wired: Cut):
    parts = wired.served.collection.parts
    await until_ready(wired.client)
    await wired.valkey.refuse()
    try:
        beginning = Beginning("github", Subject(user_id="ada", login="ada"), "github", "manual", [FIRST])
        run_id, _ = await parts.database.transaction(runs.begin, beginning)
        shown = (await wired.client.get(f"/v1/runs/{run_id}")).json
        await parts.database.transaction(runs.cancel, run_id)
        listed = (await wired.client.get("/v1/runs?login=ada")).json["runs"]
    finally:
        await wired.valkey.listen()

    assert (shown["status"], shown["total_jobs"], shown["waits"]) == ("planning", 1, None)
    assert [run["status"] for run in listed] == ["canceled"]


async def test_a_worker_tells_how_it_is_and_nothing_else(deployment: Served):
    http, stopping = HttpSettings(port=0), asyncio.Event()
    with Binding(http) as binding:
        service = serve_operations(deployment.collection.parts, http, binding)
        running = asyncio.create_task(service.run(stopping))
        client = Client(deployment.client.session, binding.url)
        told = {path: (await client.get(path)).status for path in ("/healthz", "/readyz", "/metrics", "/docs")}
        hidden = await client.get("/v1/runs")
        documented = set((await client.get("/openapi.json")).json["paths"])
        stopping.set()
        await asyncio.wait_for(running, 5)

    assert set(told.values()) == {200}
    assert hidden.problem == "not-found"
    assert documented == {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"}


async def test_a_request_under_way_when_the_server_stops_is_answered(tmp_path: Path):
    async with served(tmp_path, manners=Manners(latency_ms=800), has_token=False) as slow:
        token = slow.sim.token_of(slow.sim.world.operators()[0])
        before = slow.sim.report().calls
        adding = asyncio.create_task(slow.client.post("/v1/credentials", {"token": token}))
        while slow.sim.report().calls == before:
            await asyncio.sleep(0.01)
        slow.stop()

        assert (await adding).status == 201


async def test_without_its_database_it_lives_is_not_ready_and_says_try_again(wired: Cut):
    client = wired.client
    await until_ready(client)
    await wired.database.refuse()
    await asyncio.sleep(1.6)
    try:
        ready = await client.get("/readyz")
        told = await figures(client)
        refused = await client.get("/v1/runs")
        begun = await client.post("/v1/runs", {"login": wired.served.logins[0]})
    finally:
        await wired.database.listen()

    assert (ready.status, ready.json["detail"]) == (503, "away: database")
    assert (told["metrics_source_up database"], told["metrics_source_up gate"]) == (0, 1)
    assert told["collection_runs_active"] != told["collection_runs_active"], "not a number"
    for answer in (refused, begun):
        assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "unavailable", "5")
        assert b"127.0.0.1" not in answer.body
    await until_ready(client)
    assert (await client.get("/v1/runs")).status == 200
    assert (await wired.served.collect(wired.served.logins[0]))["status"] == "completed", "and it goes on by itself"
