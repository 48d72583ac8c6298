"""A system in a distribution of its own has everything that a built-in system has."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.cli.test_commands import environment
from tests.http.serving import Client, read_events
from tests.servers.migrated import migrated_folder
from tests.waiting import patience
from tidegate.core.plugins import installed_systems

ROOT = Path(__file__).parents[2]
TIDEGATE = str(Path(sys.executable).with_name("tidegate"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, as an installer unpacks its wheel: the package, and metadata with the entry point."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT / "examples" / "link_checker")], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


@pytest.fixture
async def page() -> AsyncGenerator[str]:
    """A page that answers."""

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(text="here")

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def tidegate(variables: dict[str, str], *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        TIDEGATE, *arguments, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_an_installed_system_brings_seven_kinds_of_contributions(installed: Path, page: str, tmp_path: Path):
    (tmp_path / "data").mkdir()
    await migrated_folder(tmp_path / "data")
    variables = environment(tmp_path, PYTHONPATH=str(installed), TIDEGATE_LINK_CHECKER__TIMEOUT="7s")

    code, listed = await tidegate(variables, "--help")
    assert (code, "Add links, and see which of them answer." in listed) == (0, True), "a command"
    code, settings = await tidegate(variables, "settings", "--json")
    assert (code, json.loads(settings)["link_checker.timeout"]) == (0, "7s"), "a section of the settings"
    code, told = await tidegate(variables, "links", "add", page)
    assert (code, told) == (0, f"{page} will be checked\n"), "a table, which the command has created"

    up = await asyncio.create_subprocess_exec(
        TIDEGATE, "up", "--port", "0", "--json", env=variables, stdout=subprocess.PIPE
    )
    assert up.stdout is not None
    try:
        async with patience(), aiohttp.ClientSession() as session:
            client = Client(session, json.loads(await up.stdout.readline())["url"])
            checked = {"links": [{"url": page, "status": 200}]}
            assert await client.until("/v1/links", lambda found: found == checked), "a service, and a route"
            async with session.get(f"{client.url}/v1/live?topic=links") as live:
                event = await anext(each async for each in read_events(live) if each.kind)
            assert (event.kind, event.data) == ("links", checked), "a topic"
            metrics = (await client.get("/metrics")).body.decode()
            counts = [f'links_checked_total{{outcome="{each}"}} {n}.0' for each, n in (("answered", 1), ("failed", 0))]
            assert [each for each in counts if each not in metrics.splitlines()] == [], "a metric"
            unknown = await client.get("/v1/live?topic=nothing")
            assert (unknown.status, "links" in unknown.json["detail"]) == (422, True)
    finally:
        up.terminate()
        await up.wait()
    assert up.returncode == 0


LOADED = """
import asyncio, sys
from tidegate.app import open_application
from tidegate.app.serving import serve_systems
from tidegate.http import Binding
from tidegate.http.events import ListenerLimit
from tidegate.settings import Settings

async def main():
    settings = Settings.load()
    async with open_application(settings) as application:
        systems = list(application.systems.values())
        with Binding(settings.http) as binding:
            dashboard = None
            if "collection" in application.systems:
                from tidegate.dashboard import open_dashboard
                dashboard = open_dashboard(systems, ListenerLimit(2)).api()
            service = serve_systems(application.context, systems, binding, further=dashboard)
            async with application.process(services={"http": service}).running():
                print("opened", *application.systems)

asyncio.run(main())
print(*sorted(name for name in sys.modules if name.startswith("tidegate.systems.")), sep="\\n")
"""


@pytest.mark.parametrize(("system", "folder"), [("campaigns", "systems.campaigns"), ("collection", "engine")])
async def test_a_process_imports_and_opens_only_the_systems_that_are_enabled(tmp_path: Path, system: str, folder: str):
    (tmp_path / "data").mkdir()
    await migrated_folder(tmp_path / "data")
    variables = environment(tmp_path, TIDEGATE_SYSTEMS=f'["{system}"]', TIDEGATE_HTTP__PORT="0")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOADED, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()

    assert process.returncode == 0, err.decode()
    opened, *modules = out.decode().splitlines()
    assert opened == f"opened {system}"
    assert ("tidegate.systems.campaigns.worker" in modules) == (system == "campaigns")
    declarations = {point.module for point in installed_systems().values()}  # may be read to find a source or a command
    packages = {name.rpartition(".")[0] for name in declarations}
    others = [name for name in modules if not name.startswith(f"tidegate.systems.{system}")]
    assert set(others) - declarations - packages == set()


METRICS_OF_OPEN_SYSTEMS = """
import asyncio, sys
from tidegate.app import open_application
from tidegate.core.telemetry.metrics import exposition
from tidegate.settings import Settings

async def main():
    async with open_application(Settings.load()):
        print(exposition().decode())

asyncio.run(main())
"""


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """An installed distribution with a system whose metrics no other module imports."""
    folder = tmp_path / "counting"
    metadata = folder / "counting-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tidegate.systems]\ncounting = counting:Counting\n")
    (folder / "counting.py").write_text(
        "from tidegate.system import System\n"
        "class Counting(System):\n"
        "    name = 'counting'\n"
        "    metrics = 'counting_metrics'\n"
    )
    (folder / "counting_metrics.py").write_text(
        "from prometheus_client import Counter\n"
        "from tidegate.core.telemetry.metrics import REGISTRY\n"
        "COUNTED = Counter('things_counted', 'Things that were counted.', registry=REGISTRY)\n"
    )
    return folder


async def exported(variables: dict[str, str]) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", METRICS_OF_OPEN_SYSTEMS, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_metrics_of_open_systems_and_of_no_others_are_exported_from_zero(counting: Path, tmp_path: Path):
    (tmp_path / "data").mkdir()
    await migrated_folder(tmp_path / "data")
    variables = environment(tmp_path, PYTHONPATH=str(counting), TIDEGATE_SYSTEMS='["counting", "waiting_room"]')

    code, told = await exported(variables)

    assert code == 0, told
    lines = told.splitlines()
    assert "things_counted_total 0.0" in lines
    assert "room_throttled_total 0.0" in lines
    assert "ranking_reads_degraded_total 0.0" not in lines


async def test_a_metric_with_a_name_that_exists_is_reported_before_the_database_is_opened(
    counting: Path, tmp_path: Path
):
    module = counting / "counting_metrics.py"
    module.write_text(module.read_text().replace("things_counted", "http_requests"))
    variables = environment(tmp_path, PYTHONPATH=str(counting), TIDEGATE_SYSTEMS='["counting"]')

    code, told = await exported(variables)

    assert code == 1
    assert "the metrics of the system 'counting' cannot be loaded: DuplicateTimeseries: " in told
    assert "http_requests" in told
    assert not (tmp_path / "data" / "tidegate.db").exists()


@pytest.mark.parametrize(
    ("command", "variables", "said"),
    [
        ("links list", {"TIDEGATE_LINK_CHECKER__TIMEOUTS": "7s"}, "did you mean TIDEGATE_LINK_CHECKER__TIMEOUT?"),
        ("links list", {"TIDEGATE_LINK_CHECKER__TIMEOUT": "soon"}, "must be a duration"),
        ("up", {"TIDEGATE_SYSTEMS": '["nothing"]'}, "no system 'nothing' is installed"),
    ],
)
async def test_errors_in_settings_of_systems_name_the_setting(
    installed: Path, tmp_path: Path, command: str, variables: dict[str, str], said: str
):
    given = environment(tmp_path, PYTHONPATH=str(installed), **variables)

    code, told = await tidegate(given, *command.split())

    assert code == 1
    assert said in told


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Two installed distributions: a module that cannot be imported, and a command whose name exists already."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "spoilt.py").write_text("import a_module_that_is_missing\n")
    (folder / "twin.py").write_text(
        "from tidegate.system import Command, System\n"
        "class Twin(System):\n"
        "    name = 'twin'\n"
        "    commands = {'runs': Command('twin:runs', 'A second command of this name.')}\n"
    )
    for name, place in (("spoilt", "spoilt:Spoilt"), ("twin", "twin:Twin")):
        metadata = folder / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-distribution\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[tidegate.systems]\n{name} = {place}\n")
    return folder


async def test_a_system_that_cannot_be_loaded_is_reported_and_other_commands_still_run(broken: Path, tmp_path: Path):
    left_out = environment(tmp_path, PYTHONPATH=str(broken), TIDEGATE_SYSTEMS='["campaigns"]')
    (tmp_path / "data").mkdir()
    await migrated_folder(tmp_path / "data")
    reason = "cannot be loaded: ModuleNotFoundError: No module named 'a_module_that_is_missing'"

    code, listed = await tidegate(left_out, "--help")
    words = " ".join(listed.split())
    assert (code, "Create, start and stop campaigns" in words, reason in words) == (0, True, True), listed
    assert "its command 'runs' is not available: the system collection has a command of this name" in words, listed
    code, said = await tidegate(left_out, "spoil")
    assert (code, "No such command 'spoil'" in said, reason in said) == (2, True, True), said
    for command in ("settings --json", "campaign list --json", "runs list --json"):
        code, said = await tidegate(left_out, *command.split())
        assert code == 0, said
    code, said = await tidegate({**left_out, "TIDEGATE_SPOILT__TIMEOUT": "7s"}, "campaign", "list")
    assert (code, reason in said) == (1, True), "its settings cannot be checked"

    used = environment(tmp_path, PYTHONPATH=str(broken))
    code, said = await tidegate(used, "up", "--port", "0")
    assert (code, reason in said, "TIDEGATE_SYSTEMS" in said) == (1, True, True), "a system that is used has to load"


async def test_no_key_file_is_created_while_a_system_with_tables_cannot_be_loaded(broken: Path, tmp_path: Path):
    folder = tmp_path / "data"
    folder.mkdir()
    await migrated_folder(folder)
    given = environment(tmp_path, PYTHONPATH=str(broken), TIDEGATE_SYSTEMS='["campaigns"]', TOKEN="ghp_" + "a" * 36)
    add = ["credentials", "add", "me", "--owner", "me", "--no-check", "--from-env", "TOKEN"]
    with closing(sqlite3.connect(folder / "tidegate.db")) as database:
        database.execute("CREATE TABLE spoilt_secrets (id INTEGER)")

    code, said = await tidegate(given, *add)
    assert (code, "the system 'spoilt'" in said) == (1, True), "its table may need a key that is lost"

    with closing(sqlite3.connect(folder / "tidegate.db")) as database:
        database.execute("DROP TABLE spoilt_secrets")
    code, said = await tidegate(given, *add)
    assert code == 0, said
