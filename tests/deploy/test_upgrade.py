"""What the guide to upgrades promises: migrations only add, who runs goes on, and who is too old does not start."""

import ast
import re
import sqlite3
from pathlib import Path

import pytest

import tidegate
from tests.cli.test_commands import tidegate as command
from tests.http.processes import started
from tests.http.test_commands import client_of, simulator
from tidegate.storage.sql.migrations import VERSION_TABLE

VERSIONS = sorted((Path(tidegate.__file__).parent / "storage" / "sql" / "migrations" / "versions").glob("0*.py"))
ADDING = {"create_table", "create_index", "add_column"}


def calls_in(file: Path) -> list[ast.Call]:
    """Its steps, in whatever function of it they are."""
    tree = ast.parse(file.read_text())
    assert "downgrade" not in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    return [call for call in calls if ast.unparse(call.func).partition(".")[0] in ("steps", "op")]


@pytest.mark.parametrize("file", VERSIONS, ids=lambda file: file.stem)
def test_a_migration_only_adds_so_that_the_previous_version_keeps_working(file: Path):
    calls = calls_in(file)

    assert calls
    assert {ast.unparse(call.func) for call in calls} <= {f"steps.{name}" for name in ADDING}
    added = [ast.unparse(call.args[1]) for call in calls if ast.unparse(call.func) == "steps.add_column"]
    assert [column for column in added if "nullable=False" in column and "server_default" not in column] == []


@pytest.mark.full
async def test_running_processes_continue_under_a_newer_schema_and_starting_ones_are_refused(tmp_path: Path):
    async with simulator() as (sim, variables), started(tmp_path, "up", "--port", "0", **variables) as up:
        become_newer(tmp_path / "data" / "tidegate.db")
        async with client_of(up.url) as client:
            run = (await client.post("/v1/runs", {"login": sim.world.logins()[0]})).json
            ended = await client.until_over(run["id"])
        second = await command(tmp_path, "work", **variables)
        assert (await up.stop())["is_clean"]

    assert (ended["status"], ended["failed_jobs"]) == ("completed", 0)
    assert second.code == 1
    assert re.search(r"its schema 9999 is newer than this program. Install the newer version", second.err)


def become_newer(file: Path) -> None:
    """What a later version may do: another column, another table, another index."""
    connection = sqlite3.connect(file, timeout=30)
    with connection:
        connection.execute("ALTER TABLE collection_runs ADD COLUMN mood VARCHAR(20)")
        connection.execute("ALTER TABLE page_jobs ADD COLUMN weight INTEGER NOT NULL DEFAULT 1")
        connection.execute("CREATE TABLE moods (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE INDEX ix_page_jobs_weight ON page_jobs (weight)")
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    connection.close()
