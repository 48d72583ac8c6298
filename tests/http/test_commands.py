"""`tidegate up`, `work` and `serve`: how they start, what they refuse, how they stop and go on; as real processes."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
from typer.testing import CliRunner

from tests.http.processes import started
from tests.http.serving import Client
from tests.waiting import look_again
from tidegate import __version__
from tidegate.app.cli import app
from tidegate.app.cli.up import UP, WORK, Banner, Stopped, greeting, shutdown_message
from tidegate.core.errors import InvalidSettings
from tidegate.core.telemetry.logs import configure_logs
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

KEY = "a-key-for-the-tests-0123456789"
WORLD = WorldShape(users=1, repositories=8, quirks=False)


@asynccontextmanager
async def simulator(**changes: object) -> AsyncGenerator[tuple[GithubSimulator, dict[str, str]]]:
    """A GitHub, and the variables that make a process use it."""
    async with GithubSimulator(SimulatorConfig(world=WORLD, **changes)) as sim:  # pyright: ignore[reportArgumentType]
        token = sim.token_of(sim.world.operators()[0])
        yield sim, {"GITHUB_TOKEN": token, "TIDEGATE_GITHUB__API_URL": sim.url}


@asynccontextmanager
async def client_of(url: str, **headers: str) -> AsyncGenerator[Client]:
    async with aiohttp.ClientSession(headers=headers) as session:
        yield Client(session, url)


async def test_up_reports_its_url_collects_and_stops_on_a_signal(tmp_path: Path):
    async with simulator() as (sim, variables), started(tmp_path, "up", "--port", "0", **variables) as up:
        assert (up.banner["role"], up.banner["version"], up.banner["pid"]) == ("up", __version__, up.process.pid)
        assert up.banner["credentials"] == ["GITHUB_TOKEN"]
        assert up.banner["database"].startswith("sqlite:///")
        assert "embedded" in up.banner["server"]
        async with client_of(up.url) as client:
            run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
            assert (await client.until_over(run["id"]))["status"] == "completed"
            assert b'job_processing_time_count{kind="REPO_ISSUES"}' in (await client.get("/metrics")).body
        stopped = await up.stop(signal.SIGINT)

        assert stopped == {"is_clean": True, "failed": [], "canceled": []}
        told = {json.loads(line)["event"] for line in up.log.read_text().splitlines()}
        assert {"http.listening", "leader.elected", "http.answered", "service.stopped"} <= told
        assert variables["GITHUB_TOKEN"] not in up.log.read_text()


@pytest.mark.full
async def test_sigterm_during_a_run_drains_and_the_next_up_continues(tmp_path: Path):
    """Calls under way end and count; nothing that was collected is collected again."""
    slow = Behaviour(latency_ms=120)
    async with simulator(behaviour=slow, limits=LimitSettings(quota=10_000)) as (sim, variables):
        login = sim.world.logins()[0]
        async with started(tmp_path, "up", "--port", "0", **variables) as first, client_of(first.url) as client:
            run = (await client.post("/v1/runs", {"login": login})).json
            listening = asyncio.create_task(listen(client, run["id"]))
            before = sim.report().calls
            while sim.report().calls < before + 6:
                await look_again()
            stopped = await first.stop()
            heard = await listening
        calls = sim.report().calls

        async with started(tmp_path, "up", "--port", "0", **variables) as second, client_of(second.url) as client:
            ended = await client.until_over(run["id"])
            await second.stop()

    assert stopped["is_clean"]
    assert "ended" not in heard, "who listened was sent home"
    assert sim.report().calls > calls, "the stop came in the middle"
    assert (ended["status"], ended["failed_jobs"]) == ("completed", 0)
    assert ended["succeeded_jobs"] == ended["total_jobs"]
    assert ended["calls"] == ended["total_jobs"], "each page was fetched once"


async def listen(client: Client, run_id: int) -> list[str]:
    """The kinds of events until the server ends the stream."""
    return [event.kind async for event in client.events(f"/v1/runs/{run_id}/events")]


@pytest.mark.full
async def test_serve_answers_requests_and_work_executes_jobs(tmp_path: Path):
    """What the worker does is heard by whoever listens to the server; the worker itself listens nowhere."""
    async with (
        simulator() as (sim, variables),
        started(
            *(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0"), **variables, TIDEGATE_HTTP__API_KEY=KEY
        ) as serve,
        started(tmp_path, "work", **variables) as work,
        client_of(serve.url, authorization=f"Bearer {KEY}") as client,
        client_of(serve.url) as unknown_caller,
    ):
        run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
        ended = await client.until_over(run["id"])
        figures = (await client.get("/metrics")).body
        refused = await unknown_caller.get("/v1/runs")
        sockets = psutil.Process(work.process.pid).net_connections("tcp")
        assert (await work.stop())["is_clean"]
        assert (await serve.stop())["is_clean"]
        logs = serve.log.read_text() + work.log.read_text()

    assert ended["status"] == "completed"
    assert b"job_processing_time_count" not in figures, "the server did not work"
    assert refused.problem == "key-needed"
    assert (work.banner["url"], serve.banner["needs_key"]) == (None, True)
    assert [each for each in sockets if each.status == psutil.CONN_LISTEN] == []
    assert KEY not in logs + json.dumps(serve.banner)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Those of a user who has set nothing; commands run in this very process."""
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    configure_logs("console", "warning")


def refusal(*arguments: str) -> str:
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, InvalidSettings), ended
    return str(ended.exception)


def test_a_port_in_use_is_reported_before_services_start(surroundings: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refusal("serve", "--port", str(port))

    assert told.startswith(f"cannot listen on 127.0.0.1:{port}: the port is in use by another program")
    assert not (surroundings / "data").exists()


@pytest.mark.parametrize("command", ["up", "serve", "work"])
def test_without_a_key_only_local_addresses_are_bound(command: str, surroundings: Path):
    assert "TIDEGATE_HTTP__API_KEY" in refusal(command, "--host", "0.0.0.0", "--port", "0")
    assert not (surroundings / "data").exists()


def test_the_settings_do_not_show_the_key(surroundings: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_HTTP__API_KEY", KEY)
    shown = CliRunner().invoke(app, ["settings", "--json"])

    assert shown.exit_code == 0
    assert KEY not in shown.output
    assert json.loads(shown.stdout)["http.api_key"] == "**********"


BANNER = Banner(
    role="up",
    version="1.2.3",
    pid=4711,
    url="http://127.0.0.1:8321",
    needs_key=False,
    database="sqlite:///tide.db",
    server="valkey 9.1 at unix:///tide.sock, embedded",
    credentials=["ada", "bob"],
)


def test_the_startup_message_names_url_servers_and_how_to_stop():
    assert greeting(UP, BANNER) == (
        "Tidegate 1.2.3: workers, leader services and HTTP\n"
        "  http         http://127.0.0.1:8321 (this machine only, without a key); API documentation at /docs\n"
        "  dashboard    open http://127.0.0.1:8321/\n"
        "  database     sqlite:///tide.db\n"
        "  server       valkey 9.1 at unix:///tide.sock, embedded\n"
        "  credentials  ada, bob\n"
        "  stop         Ctrl-C, or kill 4711; work in progress has 30 s to finish"
    )
    bare = Banner(role="work", version="1", pid=1, url=None, needs_key=False, database="d", server="s", credentials=[])
    assert "  http  " not in greeting(WORK, bare)
    assert "none; store one with `tidegate credentials add`" in greeting(WORK, bare)


def test_the_shutdown_message_states_the_result():
    assert shutdown_message(Stopped(is_clean=True, failed=[], canceled=[])).startswith("stopped gracefully")
    late = shutdown_message(Stopped(is_clean=False, failed=["http"], canceled=["worker"]))
    assert "did not finish in time: worker" in late
    assert "failed while stopping: http" in late
