"""For the machines that look after a process: alive, ready, and in figures."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.http.serving import Client, Served, figures
from tests.waiting import patience
from tidegate import __version__
from tidegate.app.serving import serve_operations
from tidegate.http import Binding
from tidegate.http.settings import HttpSettings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("figures_are_not_kept")]

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


async def test_a_live_process_answers_the_liveness_check(deployment: Served):
    assert (await deployment.client.get("/healthz")).json == {"status": "ok", "version": __version__}
    assert (await deployment.client.ask("HEAD", "/healthz")).body == b""


async def test_a_process_is_ready_while_both_servers_answer(deployment: Served):
    ready = await deployment.client.get("/readyz")

    assert (ready.status, ready.json) == (200, {"ready": True, "checks": {"database": True, "valkey": True}})


async def test_every_metric_of_the_specification_is_exported(deployment: Served):
    await deployment.collect(deployment.logins[0])

    answer = await deployment.client.get("/metrics")

    families = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert OF_THE_SPEC - families == set()


async def test_gauges_are_those_of_the_deployment(deployment: Served):
    await deployment.collect(deployment.logins[1])

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


async def test_a_worker_serves_only_health_and_metrics(deployment: Served):
    http, stopping = HttpSettings(port=0), asyncio.Event()
    with Binding(http) as binding:
        service = serve_operations(deployment.collection.parts, [], binding, settings=http)
        running = asyncio.create_task(service.run(stopping))
        client = Client(deployment.client.session, binding.url)
        told = {path: (await client.get(path)).status for path in ("/healthz", "/readyz", "/metrics", "/docs")}
        hidden = await client.get("/v1/runs")
        documented = set((await client.get("/openapi.json")).json["paths"])
        stopping.set()
        async with patience():
            await running

    assert set(told.values()) == {200}
    assert hidden.problem == "not-found"
    assert documented == {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"}
