"""The list of commands is shown without importing any of them; each is found when it is called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.batch import tidegate_each
from tests.servers.migrated import migrated_file
from tidegate.cli import COMMANDS

HEAVY = ("sqlalchemy", "aiohttp", "redis", "structlog", "tidegate.settings", "tidegate.collect")
_LOOK = """
import json, sys
from typer.testing import CliRunner
from tidegate.cli import app
result = CliRunner().invoke(app, sys.argv[1:], env={"COLUMNS": "200"})
print(json.dumps([result.exit_code, result.output, [name for name in sys.modules]]))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["colect"]])
def test_whoever_only_looks_around_does_not_wait_for_the_commands(arguments: list[str]):
    looked = subprocess.run([sys.executable, "-c", _LOOK, *arguments], capture_output=True, text=True, check=True)
    _, output, modules = json.loads(looked.stdout)

    assert [name for name in HEAVY if name in modules] == []
    if arguments == ["--help"]:
        assert [name for name, command in COMMANDS.items() if command.summary not in output] == []
    if arguments == ["colect"]:
        assert "Did you mean 'collect'?" in output


async def test_every_command_is_where_the_list_says(tmp_path: Path):
    told = await tidegate_each(tmp_path, *(f"{name} --help" for name in COMMANDS))

    assert {name: one.code for name, one in zip(COMMANDS, told, strict=True) if one.code} == {}
    assert [name for name, one in zip(COMMANDS, told, strict=True) if "install-completion" in one.out] == []


@pytest.mark.full
async def test_a_command_on_embedded_parts_does_not_wait_for_what_servers_and_migrations_need(tmp_path: Path):
    await migrated_file(tmp_path / "tidegate.db")
    command = [sys.executable, "-c", _LOOK, "runs", "list"]
    surroundings = os.environ | {"TIDEGATE_DATA_DIR": str(tmp_path)}
    looked = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    code, output, modules = json.loads(looked.stdout)

    assert code == 0, output
    assert [name for name in ("alembic", "sqlalchemy.orm", "asyncpg", "asyncmy") if name in modules] == []
