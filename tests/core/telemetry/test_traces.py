"""One trace from whatever began a run to its statistics: over processes and crashes, and nothing where nobody asks."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from tests.cli.test_commands import tidegate
from tests.core.telemetry.collector import Collector, Received, collecting
from tests.docs.pages import ROOT, blocks_of
from tests.engine.schedules.harness import HOUR, ScheduleHarness, harness_at
from tests.http.asgi import ask
from tests.http.processes import started
from tests.http.test_commands import client_of
from tests.servers.migrated import migrated_file
from tests.systems.snapshots.deployment import deployed, game
from tests.waiting import look_again
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry import spans, traces
from tidegate.core.telemetry.logs import configure_logs, get_logger
from tidegate.core.telemetry.traces import TraceSettings, open_traces, span
from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.session_routes import SessionRoutes
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
GUIDE = ROOT / "docs" / "guides" / "tracing.md"
OF_OTHERS = ("OTEL_", "TRACEPARENT")


@pytest.fixture(autouse=True)
def _without_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(OF_OTHERS)]:
        monkeypatch.delenv(name)


@pytest.fixture
async def collector() -> AsyncGenerator[Collector]:
    async with collecting() as found:
        yield found


@asynccontextmanager
async def upstream(collector: Collector, **changes: Any) -> AsyncGenerator[tuple[GithubSimulator, dict[str, str]]]:
    """A GitHub that takes its time, and the variables with which processes use it and tell the collector."""
    world = WorldShape(users=2, repositories=6, quirks=False)
    limits, behaviour = LimitSettings(quota=10_000), Behaviour(latency_ms=60)
    async with GithubSimulator(SimulatorConfig(world=world, limits=limits, behaviour=behaviour)) as sim:
        yield (
            sim,
            {
                "GITHUB_TOKEN": sim.token_of(sim.world.operators()[0]),
                "TIDEGATE_GITHUB__API_URL": sim.url,
                "TIDEGATE_TRACES__ENDPOINT": collector.url,
                "TIDEGATE_MEMBERSHIP__LEASE": "1s",
                "TIDEGATE_MEMBERSHIP__RENEW_EVERY": "300ms",
                "OTEL_BSP_SCHEDULE_DELAY": "50",
                **changes,
            },
        )


async def calls_made(sim: GithubSimulator, calls: int) -> None:
    """Wait until it was called so often."""
    while sim.report().calls < calls:
        await look_again()


@pytest.mark.full
async def test_one_trace_spans_request_two_workers_and_statistics(collector: Collector, tmp_path: Path):
    async with (
        upstream(collector) as (sim, variables),
        started(tmp_path, "serve", "--port", "0", **variables) as serve,
        client_of(serve.url, traceparent=TRACEPARENT) as client,
    ):
        async with started(tmp_path, "work", **variables) as first:
            before = sim.report().calls
            run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
            await calls_made(sim, before + 4)
            await first.stop()
        async with started(tmp_path, "work", **variables) as second:
            ended = await client.until_over(run["id"])
            await second.stop()
        await serve.stop()

    assert {each.trace for each in collector.spans} == {TRACE}
    trigger = collector.one("POST /v1/runs")
    assert (trigger.parent, trigger.service, trigger.pid) == (CALLER, "tidegate", serve.process.pid)
    assert trigger.facts["http.response.status_code"] == 201
    assert collector.chain(collector.one("begin run")) == ["begin run", "POST /v1/runs"]

    jobs = [each for each in collector.spans if each.name.startswith("job ")]
    done = [each for each in jobs if each.facts["tidegate.outcome"] == "succeeded"]
    assert len({each.facts["tidegate.job"] for each in done}) == len(done) == ended["total_jobs"]
    assert {each.pid for each in jobs} == {first.process.pid, second.process.pid}
    for job in jobs:
        assert collector.chain(job)[1:] == ["begin run", "POST /v1/runs"]
        assert_parts_of_a_job(collector, job)

    statistics = collector.one("statistics")
    chain = ["statistics", "complete run", "event collection.run_ended.github", "begin run", "POST /v1/runs"]
    assert collector.chain(statistics) == chain
    assert collector.one("complete run").facts["tidegate.jobs"] == ended["total_jobs"]
    assert variables["GITHUB_TOKEN"].encode() not in collector.raw
    assert names_in_the_guide() <= {each.name for each in collector.spans}
    logged = [json.loads(line) for line in serve.log.read_text().splitlines()]
    assert {line.get("trace_id") for line in logged} <= {None, TRACE}


def names_in_the_guide() -> set[str]:
    """The spans that the guide draws as a tree."""
    [tree] = [block.text for block in blocks_of(GUIDE) if block.language == "text"]
    found: list[str] = re.findall(r"^[ │├└─]*(\S(?:\S| (?! ))*)", tree, re.MULTILINE)
    return {name for name in found if name != "…"}


def assert_parts_of_a_job(collector: Collector, job: Received) -> None:
    """Claim, call and commit, in this order and within it. On a busy machine a call may be tried again."""
    parts = sorted((each for each in collector.spans if each.parent == job.id), key=lambda each: each.began_ns)
    assert [name for name, _ in groupby(each.name for each in parts)] == ["claim", "call", "commit"]
    assert job.began_ns <= parts[0].began_ns
    assert parts[-1].ended_ns <= job.ended_ns
    assert parts[-2].facts.get("http.response.status_code") in (200, 304, None), "None: it failed, and is tried again"


@pytest.mark.full
async def test_the_trace_of_a_killed_worker_is_continued_by_the_next(collector: Collector, tmp_path: Path):
    async with upstream(collector) as (sim, variables):
        async with (
            started(tmp_path, "up", "--port", "0", **variables) as first,
            client_of(first.url, traceparent=TRACEPARENT) as client,
        ):
            before = sim.report().calls
            run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
            await calls_made(sim, before + 8)
            while not any(each.name.startswith("job ") for each in collector.spans):
                await look_again()
            first.process.kill()
            await first.process.wait()
        async with started(tmp_path, "up", "--port", "0", **variables) as second, client_of(second.url) as client:
            ended = await client.until_over(run["id"])
            await second.stop()

    assert ended["status"] == "completed"
    assert {each.trace for each in collector.spans} == {TRACE}
    jobs = [each for each in collector.spans if each.name.startswith("job ")]
    assert {each.pid for each in jobs} == {first.process.pid, second.process.pid}
    statistics = collector.one("statistics")
    assert statistics.pid == second.process.pid
    assert "begin run" in collector.chain(statistics)


@pytest.mark.full
async def test_a_command_starts_a_trace_or_continues_that_of_its_pipeline(collector: Collector, tmp_path: Path):
    async with upstream(collector) as (sim, variables):
        own, others = sim.world.logins()
        ended = [await tidegate(tmp_path, "collect", own, "--no-progress", **variables)]
        standard = variables | {"TIDEGATE_TRACES__ENDPOINT": "", "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        standard |= {"OTEL_SERVICE_NAME": "collectors", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=tide"}
        standard |= {"TRACEPARENT": TRACEPARENT}
        ended += [await tidegate(tmp_path, "collect", others, "--no-progress", **standard)]

    assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err
    own_root, continued = collector.named("tidegate collect")
    assert (own_root.parent, own_root.service) == ("", "tidegate")
    assert (continued.trace, continued.parent, continued.service) == (TRACE, CALLER, "collectors")
    assert collector.headers["x-team"] == "tide"
    for each in collector.named("statistics"):
        assert collector.chain(each)[-2:] == ["begin run", "tidegate collect"]
    assert {each.trace for each in collector.named("statistics")} == {own_root.trace, TRACE}


async def test_a_refresh_is_traced_from_request_to_row(collector: Collector, tmp_path: Path, embedded: Valkey):
    async with game() as sim, deployed(tmp_path, embedded, sim) as deployment, traced(collector):
        with span("page", parent=TRACEPARENT):
            await deployment.read(4711)
        async with deployment.working():
            await deployment.until_fresh(4711)

    refresh = collector.one("refresh character")
    assert collector.chain(refresh) == ["refresh character", "request refresh", "page"]
    parts = {each.name for each in collector.spans if each.parent == refresh.id}
    assert parts == {"call", "write"}
    assert refresh.facts["tidegate.outcome"] == "refreshed"
    assert sim.api_key.encode() not in collector.raw


@pytest.fixture
async def schedule_harness(tmp_path: Path, embedded: Valkey, clock: ManualClock) -> AsyncGenerator[ScheduleHarness]:
    async with harness_at(await migrated_file(tmp_path / "local.db"), embedded, clock) as opened:
        yield opened


async def test_each_due_schedule_starts_its_own_trace(
    collector: Collector, schedule_harness: ScheduleHarness, clock: ManualClock
):
    added = {each.login: each.id for each in await schedule_harness.add("ada", "grace", "broken")}
    clock.advance(3 * HOUR)
    async with traced(collector):
        await schedule_harness.fire_all()

    runs = {run.login: run for run in await schedule_harness.runs()}
    fired = {login: collector.one(f"schedule {number}") for login, number in added.items()}
    assert {each.parent for each in fired.values()} == {""}
    assert {login: run.traceparent for login, run in runs.items()} == {
        login: f"00-{fired[login].trace}-{fired[login].id}-01" for login in ("ada", "grace")
    }
    assert fired["ada"].facts["tidegate.run"] == runs["ada"].id
    assert fired["broken"].facts["tidegate.outcome"] == "failed"
    assert "the source has a defect" in fired["broken"].failure


async def test_a_triggered_schedule_continues_the_trace_of_its_caller(
    collector: Collector, schedule_harness: ScheduleHarness
):
    [ada] = await schedule_harness.add("ada")
    async with traced(collector):
        with span("message", parent=TRACEPARENT):
            await schedule_harness.schedules.trigger(ada.id, "key")

    [run] = await schedule_harness.runs()
    fired = collector.one(f"schedule {ada.id}")
    assert collector.chain(fired) == [f"schedule {ada.id}", "message"]
    assert run.traceparent == f"00-{TRACE}-{fired.id}-01"


async def test_an_unsampled_trace_exports_no_spans(collector: Collector, schedule_harness: ScheduleHarness):
    [ada, grace] = await schedule_harness.add("ada", "grace")
    async with traced(collector, sample=0):
        await schedule_harness.schedules.trigger(ada.id, "key")
        with span("message", parent=TRACEPARENT):  # whose caller wants to see it
            await schedule_harness.schedules.trigger(grace.id, "key")
    async with traced(collector):
        with span("unwanted", parent=TRACEPARENT[:-1] + "0") as unwanted:
            assert unwanted is not None
            assert unwanted.traceparent is None

    assert [(run.login, run.traceparent is None) for run in await schedule_harness.runs()] == [
        ("ada", True),
        ("grace", False),
    ]
    assert sorted(each.name for each in collector.spans) == ["message", f"schedule {grace.id}"]


async def test_an_external_traceparent_does_not_force_sampling(collector: Collector):
    """What is open to everybody is traced as the settings say; whoever showed a key may have it traced."""
    key = "operate-0123456789abcdef"
    settings = HttpSettings(api_key=SecretStr(key))
    app = build_application(SessionRoutes(Access(settings)).routes(), settings)
    async with traced(collector, sample=0):
        unknown_caller = await ask(app, "POST", "/v1/session", {"traceparent": TRACEPARENT}, {"key": "wrong"})
        known = {"traceparent": TRACEPARENT, "authorization": f"Bearer {key}"}
        friend = await ask(app, "POST", "/v1/session", known, {"key": key})

    assert (unknown_caller.status, friend.status) == (401, 200)
    assert [each.name for each in collector.spans] == ["POST /v1/session"]


@asynccontextmanager
async def traced(collector: Collector, **settings: Any) -> AsyncGenerator[None]:
    """This process; its end waits for a thread that speaks to the collector, which is here."""
    opened = open_traces(TraceSettings(endpoint=collector.url, **settings))
    opened.__enter__()
    try:
        yield
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


async def test_log_lines_inside_a_span_have_its_trace_id(collector: Collector):
    lines, log = StringIO(), get_logger(__name__)
    configure_logs("json", stream=lines)
    try:
        async with traced(collector):
            with span("outer", parent=TRACEPARENT):
                log.info("inside")
            log.info("outside")
    finally:
        configure_logs(level="warning")

    written = {line["event"]: line for line in map(json.loads, lines.getvalue().splitlines())}
    assert written["inside"]["trace_id"] == TRACE
    assert "trace_id" not in written["outside"]


async def test_a_recorded_failure_contains_no_secrets(collector: Collector):
    token = "ghp_" + "a1B2" * 9
    async with traced(collector):
        with pytest.raises(ValueError), span("risky", {"note": f"with {token}"}):
            raise ValueError(f"no use with {token}")

    risky = collector.one("risky")
    assert risky.failure.startswith("ValueError: no use with ")
    assert token.encode() not in collector.raw


def test_an_unavailable_collector_delays_shutdown_only_briefly(monkeypatch: pytest.MonkeyPatch):
    assert spans.SENT_WITHIN_S <= 5
    monkeypatch.setattr(spans, "SENT_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with open_traces(TraceSettings(endpoint=endpoint)), span("lost"):
            pass
        assert "send the last spans" in {thread.name for thread in threading.enumerate()}, "it was not waited for"
    assert traces.tracer() is None


@pytest.mark.parametrize("address", ["localhost:4318", "ftp://host", "http://u:p@host:4318", "http://host?key=1", ""])
def test_an_endpoint_must_be_a_plain_url(address: str):
    with pytest.raises(ValidationError, match="must be an address"):
        TraceSettings(endpoint=address)


@pytest.mark.parametrize("sample", [-0.1, 1.1])
def test_the_sample_ratio_is_between_zero_and_one(sample: float):
    with pytest.raises(ValidationError):
        TraceSettings(sample=sample)


def _is_not_there(_name: str) -> None:
    """As `find_spec` says it."""


def test_without_the_library_enabling_traces_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(traces, "find_spec", _is_not_there)
    with (
        pytest.raises(InvalidSettings, match=r'pip install "tidegate\[otel\]"'),
        open_traces(TraceSettings(endpoint="http://localhost:4318")),
    ):
        pass
    with open_traces(TraceSettings()):
        assert traces.tracer() is None


def test_the_standard_disable_variable_turns_tracing_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with open_traces(TraceSettings(endpoint="http://localhost:4318")):
        assert traces.tracer() is None


@pytest.mark.full
def test_disabled_tracing_imports_no_tracing_library(tmp_path: Path):
    """In a process of its own; where metrics of it are installed, the Redis client imports those by itself."""
    script = """
import asyncio, sys
from tidegate.systems.github.opening import open_github
from tidegate.app.cli import up
from tidegate.cli import running
from tidegate.engine.commands import collect
from tidegate.app import serving
from tidegate.settings import Settings
from tidegate.core.telemetry.traces import open_traces, span
settings = Settings.load()
async def main():
    async with open_github(settings, needs_credential=False):
        with span("x") as one, span("y") as two:
            assert one is two is None
with open_traces(settings.traces):
    asyncio.run(main())
ours = ("opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto", "tidegate.core.telemetry.spans")
print([name for name in sys.modules if name.startswith(ours)])
"""
    command = [sys.executable, "-c", script]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", *OF_OTHERS))}
    surroundings = kept | {"TIDEGATE_DATA_DIR": str(tmp_path)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=surroundings)

    assert (ran.stdout, ran.stderr) == ("[]\n", "")
