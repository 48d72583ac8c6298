"""What a process tells while one of its servers is away, and while it stops.

Apart from its other figures: who leads is told for the whole of a Python process, which has several deployments here.
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.http.proxied_servers import Cut, wired_to_servers
from tests.http.serving import Client, figures, served
from tests.waiting import look_again, patience
from tidegate.engine import runs
from tidegate.engine.runs import NewRun
from tidegate.engine.source import JobSpec, Subject
from tidegate_simulators.github import Behaviour

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("figures_are_not_kept")]

FIRST = JobSpec(kind="USER_BASIC", resource="user:ada")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wired(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cut]:
    async with wired_to_servers(tmp_path_factory.mktemp("wired")) as cut:
        yield cut


async def until_ready(client: Client) -> None:
    async with patience():
        while (await client.get("/readyz")).status != 200:
            await look_again()


async def test_without_valkey_the_process_is_live_not_ready_and_shows_sql_data(wired: Cut):
    client = wired.client
    await until_ready(client)
    assert (await figures(client))["stream_pending_count jobs"] == 0
    await wired.valkey.refuse()
    try:
        async with patience():
            ready = await client.get("/readyz")
            told = await figures(client)
            alive = await client.get("/healthz")
    finally:
        await wired.valkey.listen()

    assert (ready.status, ready.problem, ready.json["detail"]) == (503, "unavailable", "unavailable: valkey")
    assert alive.status == 200
    assert (told["metrics_source_up gate"], told["metrics_source_up streams"]) == (0, 0)
    assert told["metrics_source_up database"] == 1
    unknown = [name for name, value in told.items() if value != value]
    assert {"stream_pending_count jobs", "delayed_queue_size shard-0", "rate_limit_tokens_blocked shard-0"} <= set(
        unknown
    )
    assert told["collection_runs_active"] == 0
    await until_ready(client)
    assert (await figures(client))["stream_pending_count jobs"] == 0


async def test_without_valkey_a_run_is_shown_without_the_reason_it_waits(wired: Cut):
    parts = wired.served.collection.parts
    await until_ready(wired.client)
    await wired.valkey.refuse()
    try:
        beginning = NewRun("github", Subject(user_id="ada", login="ada"), "github", "manual", [FIRST])
        run_id, _ = await parts.database.transaction(runs.begin, beginning)
        shown = (await wired.client.get(f"/v1/runs/{run_id}")).json
        await parts.database.transaction(runs.cancel, run_id)
        listed = (await wired.client.get("/v1/runs?login=ada")).json["runs"]
    finally:
        await wired.valkey.listen()

    assert (shown["status"], shown["total_jobs"], shown["waits"]) == ("planning", 1, None)
    assert [run["status"] for run in listed] == ["canceled"]


@pytest.mark.full
async def test_without_the_database_the_process_is_live_not_ready_and_answers_retry_later(wired: Cut):
    client = wired.client
    await until_ready(client)
    await wired.database.refuse()
    try:
        with capture_logs() as lines:
            ready = await client.get("/readyz")
            told = await figures(client)
            refused = await client.get("/v1/runs")
            begun = await client.post("/v1/runs", {"login": wired.served.logins[0]})
            for _ in range(20):
                await client.get("/v1/runs")
    finally:
        await wired.database.listen()

    # However many requests, probes and services meet it. The default level leaves out the lines of requests.
    assert [line["event"] for line in lines if line["log_level"] != "info"] == ["server.away"]

    assert (ready.status, ready.json["detail"]) == (503, "unavailable: database")
    assert (told["metrics_source_up database"], told["metrics_source_up gate"]) == (0, 1)
    assert told["collection_runs_active"] != told["collection_runs_active"], "not a number"
    for answer in (refused, begun):
        assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "unavailable", "5")
        assert b"127.0.0.1" not in answer.body
    await until_ready(client)
    assert (await client.get("/v1/runs")).status == 200
    assert (await wired.served.collect(wired.served.logins[0]))["status"] == "completed", "and it goes on by itself"


async def test_a_request_in_progress_at_shutdown_is_answered(tmp_path: Path):
    async with served(tmp_path, behaviour=Behaviour(latency_ms=800), has_token=False) as slow:
        token = slow.sim.token_of(slow.sim.world.operators()[0])
        before = slow.sim.report().calls
        adding = asyncio.create_task(slow.client.post("/v1/credentials", {"token": token}))
        while slow.sim.report().calls == before:
            await look_again()
        slow.stop()

        assert (await adding).status == 201
