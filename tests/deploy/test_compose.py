"""The files under deploy/: whole, pinned and closed; and the commands of our services run as they say.

There is no Docker engine where these tests run, so no image is built and no container started here. What is checked
is what the files say, that our settings take exactly the environment that they give, and that the commands of our
services do their work with that environment, as processes without any privilege, on real servers (MariaDB stands for
MySQL).
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import aiohttp
import pytest
import yaml

from tests.deploy.stack import COMPOSE, DEPLOY, FILLED, OURS, ROOT, Dockerfile, example, services, stack, variables
from tests.http.serving import Client
from tests.servers.guarded import new_folder, unprivileged_user
from tests.servers.migrated import migrated_database
from tests.servers.mongo import mongo_database
from tests.servers.ports import free_port
from tests.servers.valkey import ValkeyServer
from tests.waiting import look_again, patience
from tidegate.settings import Settings
from tidegate.settings.model import compose
from tidegate.settings.sources import settings_of, variable_of
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

VARIABLES = {variable_of(path) for path, _ in settings_of(compose())}
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*")


def test_the_example_file_has_exactly_the_values_that_the_compose_file_uses():
    assert variables() == set(example())
    assert {name for name, value in example().items() if not value} - set(FILLED) == {"GITHUB_TOKEN", "TRACES_ENDPOINT"}


def test_required_values_have_no_default_and_are_enforced():
    for name in FILLED:
        assert example()[name] == "", "a secret that everybody knows is none"
        assert f"${{{name}:?" in COMPOSE.read_text()


@pytest.mark.parametrize("name", services())
def test_every_service_is_pinned_has_a_health_check_and_restarts(name: str):
    service = services()[name]

    assert PINNED.fullmatch(service["image"])
    assert service["restart"] == ("on-failure" if name == "migrate" else "unless-stopped")
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "max-size" in service["logging"]["options"]
    assert service["healthcheck"] == {"disable": True} or service["healthcheck"]["test"]
    assert (service["healthcheck"] == {"disable": True}) == (name == "migrate"), "which ends by itself"


def test_only_the_dashboard_is_published_and_only_on_localhost():
    assert {name: each["ports"] for name, each in services().items() if "ports" in each} == {
        "serve": ["127.0.0.1:8321:8321"]
    }
    assert stack()["networks"]["servers"] == {"internal": True}
    outside = {name for name, each in services().items() if "outside" in each["networks"]}
    assert outside == set(OURS)


def test_valkey_accepts_the_configured_options_and_persists_data():
    """As its image passes them on: each line is one argument."""
    program, *options = services()["valkey"]["command"]
    port, password = free_port(), FILLED["VALKEY_PASSWORD"]
    with ValkeyServer(*options, port=port) as server:
        server.url = f"redis://:{password}@127.0.0.1:{port}"
        with closing(server.client()) as client:
            told: Any = [client.config_get(name) for name in ("maxmemory-policy", "appendonly", "save")]

    assert program == "valkey-server", "else the image would not give up root"
    assert [value for each in told for value in each.values()] == ["noeviction", "yes", ""]


@pytest.mark.parametrize("name", OURS)
def test_services_of_the_project_run_with_minimal_privileges(name: str):
    service = services()[name]

    assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
    assert (service["init"], service["stop_grace_period"]) == (True, "35s")
    assert not service.get("volumes"), "whatever must last is on a server"


def test_every_volume_is_named_and_every_mounted_file_exists():
    mounted = [place.split(":")[0] for each in services().values() for place in each.get("volumes", [])]

    assert {place for place in mounted if not place.startswith(".")} == set(stack()["volumes"])
    assert [place for place in mounted if place.startswith(".") and not (DEPLOY / place).exists()] == []


def test_prometheus_finds_every_process_by_container_name():
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    [job] = [each for each in scraped["scrape_configs"] if each["job_name"] == "tidegate"]
    workers = [f"{stack()['name']}-work-{n + 1}:{port_of('work')}" for n in range(int(example()["WORKERS"]))]

    assert job["static_configs"][0]["targets"] == [
        f"{services()['serve']['container_name']}:{port_of('serve')}",
        *workers,
    ]
    assert f"/etc/prometheus/{job['authorization']['credentials_file']}" in str(services()["prometheus"]["entrypoint"])


def port_of(name: str) -> str:
    command: list[str] = services()[name]["command"]
    return command[command.index("--port") + 1]


@pytest.mark.parametrize("name", OURS)
def test_the_settings_accept_the_values_of_the_files(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    given = Dockerfile().environment | services()[name]["environment"] | {"TIDEGATE_DATA_DIR": str(tmp_path)}
    assert {each for each in given if each.startswith("TIDEGATE_")} <= VARIABLES
    for variable in [each for each in os.environ if each.startswith("TIDEGATE_")]:
        monkeypatch.delenv(variable)
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)

    settings = Settings.load()

    assert settings.http.host == "0.0.0.0"
    assert settings.http.keys == (FILLED["OPERATE_KEY"], FILLED["READ_KEY"])
    assert not settings.traces.is_wanted
    assert not settings.migrates_at_start, "one process does, before all others"


def test_the_image_is_pinned_and_its_user_owns_no_files():
    image = Dockerfile()

    assert all(PINNED.fullmatch(each.split()[0]) for each in image.all("FROM"))
    assert image.last("USER") == "10001:10001"
    assert image.exec_form("ENTRYPOINT") == ["tidegate"], "the first process is ours, and gets the signals"
    assert "/healthz" in image.last("HEALTHCHECK")
    assert not [name for name in image.environment if re.search("KEY|TOKEN|PASSWORD|SECRET", name)]
    assert all("--require-hashes" in each or "--no-index" in each for each in image.all("RUN") if "pip install" in each)


def test_only_files_that_the_image_needs_reach_the_builder():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {word for each in Dockerfile().all("COPY") if "--from" not in each for word in each.split()[:-1]}

    assert "*" in lines
    assert let_in == copied
    assert [each for each in copied if not (ROOT / each).exists()] == []


def pins_in(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    for pin in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in pin, pin
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^ ;]+)", text, re.MULTILINE))


def test_the_image_has_the_tested_versions_and_all_drivers():
    runtime, tested = pins_in("runtime.txt"), pins_in("dev.txt")
    [extras] = re.findall(r"^IMAGE_EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert runtime.items() <= tested.items(), "run `make pins`"
    assert {
        "asyncpg",
        "asyncmy",
        "pymongo",
        "aiokafka",
        "aiobotocore",
        "pyarrow",
        "opentelemetry-sdk",
    } <= runtime.keys()
    assert extras.split() == ["postgres", "mysql", "mongo", "kafka", "aws", "archive", "otel"]
    assert "pytest" not in runtime
    assert "hatchling" in pins_in("build.txt")


@pytest.mark.skipif("TIDEGATE_TEST_IMAGE" not in os.environ, reason="minutes of downloads: TIDEGATE_TEST_IMAGE=1")
@pytest.mark.timeout(900)
def test_the_build_steps_work_in_a_folder(tmp_path: Path):
    """Those that install, one after the other, with /opt and the rest below a folder of ours."""
    source = tmp_path / "src"
    (source / "requirements").mkdir(parents=True)
    for copied in (line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")):
        subprocess.run(["cp", "-r", ROOT / copied, source / copied], check=True)
    for step in [each for each in Dockerfile().all("RUN") if not each.startswith("groupadd")]:
        here = step.replace("/opt/", f"{tmp_path}/opt/").replace("/wheels", f"{tmp_path}/wheels")
        here = here.replace("python -m venv", f"{sys.executable} -m venv")
        subprocess.run(["sh", "-ec", here], cwd=source, check=True, env={"PATH": "/usr/bin:/bin"})
    ran = subprocess.run(
        [tmp_path / "opt/tidegate/bin/tidegate", "migrate", "--json"],
        capture_output=True,
        check=True,
        env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")},
    )
    assert json.loads(ran.stdout)["applied"]


@cache
def nobody() -> tuple[str | None, tuple[str, ...]]:
    """A user without rights; or what takes ours from us, where Python lies in a folder that is closed to others."""
    user = unprivileged_user()
    if user is None:
        return None, ()
    try:
        subprocess.run([sys.executable, "-c", ""], user=user, extra_groups=[], check=True)
        return user, ()
    except (PermissionError, subprocess.CalledProcessError):
        return None, ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


class Running:
    """A service as a process: its command, its environment, a folder of its own, and nobody's rights."""

    def __init__(self, name: str, environment: Mapping[str, str], port: int | None = None) -> None:
        self.name, self.port = name, port
        user, without_rights = nobody()
        self._home, self._log = new_folder(user), TemporaryFile()  # noqa: SIM115 - a pipe would have to be read
        words: list[str] = services()[name]["command"]
        command = words if port is None else [str(port) if word == port_of(name) else word for word in words]
        self.process = subprocess.Popen(
            [*without_rights, str(Path(sys.executable).with_name("tidegate")), *command],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            cwd=self._home,
            user=user,
            extra_groups=[] if user else None,
            umask=0o077,
            env={**environment, "TIDEGATE_DATA_DIR": str(self._home), "PATH": os.environ["PATH"]},
        )

    async def answers(self) -> None:
        """Wait until it does, however slow the machine is."""
        async with patience(), aiohttp.ClientSession() as session:
            while True:
                assert self.process.poll() is None, self.end(None)[1]
                with suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"http://127.0.0.1:{self.port}/healthz"):
                        return
                await look_again()

    def is_healthy(self) -> bool:
        """By the very test that compose makes."""
        _, _, *words = services()[self.name]["healthcheck"]["test"]
        code = [word.replace(f":{port_of(self.name)}/", f":{self.port}/") for word in words]
        return subprocess.run([sys.executable, *code], capture_output=True, check=False).returncode == 0

    def end(self, how: signal.Signals | None = signal.SIGTERM) -> tuple[int, str]:
        """Ask it to stop, within the time that compose gives it; how it ended, and what it wrote."""
        if how is not None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(timeout=35)
            self._log.seek(0)
            return code, self._log.read().decode()
        finally:
            self._log.close()
            self.process.kill()
            shutil.rmtree(self._home, ignore_errors=True)


@asynccontextmanager
async def surroundings(folder: Path, sim: GithubSimulator) -> AsyncGenerator[dict[str, str]]:
    """What compose gives our services, with other addresses: those of servers of the tests."""
    given = Dockerfile().environment | services()["work"]["environment"]
    password, port = FILLED["VALKEY_PASSWORD"], free_port()
    async with migrated_database("mariadb", folder) as database, mongo_database() as documents:
        with ValkeyServer("--requirepass", password, port=port):
            yield given | {
                "TIDEGATE_VALKEY_URL": f"redis://:{password}@127.0.0.1:{port}/0",
                "TIDEGATE_DATABASE_URL": database,
                "TIDEGATE_DOCUMENTS__URL": documents,
                "TIDEGATE_GITHUB__API_URL": sim.url,
                "GITHUB_TOKEN": sim.token_of(sim.world.operators()[0]),
            }


@pytest.mark.full
async def test_the_commands_of_the_services_run_in_their_environment(tmp_path: Path):
    """Kafka is left out: nothing is configured that would use it, as in the file itself."""
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(
            GithubSimulator(SimulatorConfig(world=WorldShape(users=1, repositories=2, quirks=False)))
        )
        environment = await stack.enter_async_context(surroundings(tmp_path, sim))
        migrate = Running("migrate", environment)
        assert await asyncio.to_thread(migrate.end, None) == (0, "")

        serve, work = (Running(name, environment, free_port()) for name in ("serve", "work"))
        try:
            for each in (serve, work):
                await each.answers()
                assert await asyncio.to_thread(each.is_healthy)
            ended, figures, refused = await use(serve, work, sim.world.logins()[0])
        finally:
            stopped = [await asyncio.to_thread(each.end) for each in (work, serve)]

    assert [code for code, _ in stopped] == [0, 0]
    assert (ended["status"], ended["failed_jobs"]) == ("completed", 0)
    assert b"job_processing_time_count" in figures, "the worker tells Prometheus what it did"
    assert refused == 401
    told = "".join(told for _, told in stopped)
    assert not [secret for secret in {*FILLED.values(), environment["GITHUB_TOKEN"]} if secret in told]


async def use(serve: Running, work: Running, login: str) -> tuple[dict[str, Any], bytes, int]:
    """Begin a run as an operator, look as Prometheus does, and try it without a key."""
    async with AsyncExitStack() as stack:
        operator, reader, unknown_caller = [
            await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
            for headers in (bearer("OPERATE_KEY"), bearer("READ_KEY"), {})
        ]
        client = Client(operator, f"http://127.0.0.1:{serve.port}")
        run = (await client.post("/v1/runs", {"login": login})).json
        ended = await client.until_over(run["id"])
        async with reader.get(f"http://127.0.0.1:{work.port}/metrics") as answer:
            figures = await answer.read()
        async with unknown_caller.get(f"{client.url}/v1/runs") as answer:
            return ended, figures, answer.status


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {FILLED[name]}"}
