"""Imports follow use: a command loads what it needs, help loads neither drivers nor systems."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.importing import Imported, imports_of
from tests.servers.migrated import migrated_file
from tidegate.app.cli import all_commands
from tidegate.core.plugins import installed_systems
from tidegate.system import find_system

SERVERS = ("sqlalchemy", "redis", "aiohttp", "asyncpg", "asyncmy", "pymongo", "aiokafka", "cryptography")
SERVING = ("litestar", "starlette", "uvicorn", "tidegate.dashboard", "tidegate.http.application")
SYSTEMS = tuple(f"tidegate.systems.{name}" for name in ("campaigns", "crawl", "ranking", "snapshots", "waiting_room"))
NEVER = ("alembic", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "tidegate_simulators", "asyncpg", *SERVING)
DECLARATIONS = {point.module for point in installed_systems().values()}
"""Modules that declare systems and their commands; they import nothing else."""
GROUPS = ("crawl schedules", "crawl identities", "snapshots dead")


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in (*NEVER, *SYSTEMS) if name not in names)


FORBIDDEN = {
    "runs list": (*without(), "redis", "aiohttp", "cryptography", "tidegate.engine.credentials"),
    "schedules list": (*without(), "redis", "aiohttp", "cryptography", "tidegate.engine.credentials"),
    "settings": (
        *without(*SYSTEMS),  # it lists the settings of all
        "redis",
        "aiohttp",
        "cryptography",
        "tidegate.engine.credentials",
        "tidegate.engine.worker",
    ),
    "doctor": (
        *without("tidegate.systems.crawl", "tidegate.systems.snapshots"),
        *("aiohttp", "tidegate.systems.crawl.source", "tidegate.systems.snapshots.service"),
    ),
    "campaign list": (*without("tidegate.systems.campaigns"), "aiohttp", "tidegate.engine.credentials"),
    "room list": (*without("tidegate.systems.waiting_room"), "aiohttp", "tidegate.engine.worker"),
    "crawl products": (*without("tidegate.systems.crawl"), "redis", "aiohttp", "tidegate.systems.github.source"),
}
"""What each of these has nothing to do with."""


def test_the_list_of_commands_imports_none_of_them():
    looked = imports_of(["--help", "--version", "", "colect"])

    heavy = (*SERVERS, "structlog", "rich", "tidegate.settings", "tidegate.engine")
    found = {arguments: set(one.of(*heavy)) - DECLARATIONS for arguments, one in looked.items()}
    assert {arguments: modules for arguments, modules in found.items() if modules} == {}
    assert [name for name, command in all_commands().items() if command.summary not in looked["--help"].output] == []
    assert "Did you mean 'collect'?" in looked["colect"].output


@pytest.fixture(scope="module")
def helps() -> dict[str, Imported]:
    """The help of every command and every group, by its name."""
    return imports_of(f"{name} --help" for name in (*all_commands(), *GROUPS))


def test_every_listed_command_exists_at_its_listed_place(helps: dict[str, Imported]):
    assert {name: looked.output for name, looked in helps.items() if looked.code} == {}
    assert [name for name, looked in helps.items() if "install-completion" in looked.output] == []


def test_help_imports_no_driver_and_no_system(helps: dict[str, Imported]):
    heavy = (*SERVERS, *NEVER, *SYSTEMS, "rich", "structlog", "uvloop", "tidegate.app", "tidegate.settings.model")
    light = {
        *(point.module for point in installed_systems().values()),  # they declare the commands
        *(each.place.partition(":")[0] for name in installed_systems() for each in find_system(name).commands.values()),
        "tidegate.systems.campaigns.model",
        "tidegate.systems.crawl.stages",
        "tidegate.systems.ranking.model",
    }
    own = {"simulate --help": {"tidegate_simulators", "tidegate_simulators.command_line", "tidegate_simulators.errors"}}
    found = {
        name: {
            each for each in looked.of(*heavy) if "commands" not in each.split(".") and "tidegate.app.cli." not in each
        }
        - light
        - own.get(name, set())
        for name, looked in helps.items()
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_help_shows_a_flag_without_a_type(helps: dict[str, Imported]):
    assert [name for name, looked in helps.items() if "<bool>" in looked.output] == []
    assert all("--help" in looked.output for looked in helps.values())


async def test_a_command_imports_only_modules_that_it_uses(tmp_path: Path):
    await migrated_file(tmp_path / "tidegate.db")
    (tmp_path / "tidegate.db").chmod(0o600)
    tmp_path.chmod(0o700)
    used_by_all = ("pydantic_settings", "rich.console", "sqlalchemy", "structlog")
    looked = imports_of(FORBIDDEN, {"TIDEGATE_DATA_DIR": str(tmp_path)}, loaded=used_by_all)

    assert {name: one.output for name, one in looked.items() if one.code} == {}
    light = {point.module for point in installed_systems().values()}  # a search for settings may read them
    light.add("tidegate.engine.credentials.pools")  # names and texts
    found = {name: set(one.of(*FORBIDDEN[name])) - light for name, one in looked.items()}
    assert {name: modules for name, modules in found.items() if modules} == {}


COLLECT = (
    *("tidegate.app.cli", "tidegate.engine.commands.collecting", "tidegate.engine.commands.summary"),
    *("tidegate.engine.collection", "tidegate.systems.github.plugin", "tidegate.systems.github.authority"),
)
UNUSED = ("cryptography.hazmat", "jwt", *NEVER)


def test_a_collection_with_the_token_of_the_environment_imports_no_cipher():
    program = f"import {', '.join(COLLECT)}, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert [
        name for name in ran.stdout.split() if name in UNUSED or name.startswith(tuple(f"{n}." for n in UNUSED))
    ] == []


def test_the_package_can_be_run_as_a_module():
    command = [sys.executable, "-m", "tidegate", "runs", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: tidegate runs ")


TYPED = {
    "bash": {"COMP_WORDS": "tidegate ru", "COMP_CWORD": "1"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "tidegate ru"},
    "fish": {"_TYPER_COMPLETE_ARGS": "tidegate ru", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}
"""How a shell says what was typed so far."""


@pytest.mark.parametrize("shell", TYPED)
def test_a_shell_completes_a_command_without_importing_it(shell: str):
    looked = imports_of([""], {"_TIDEGATE_COMPLETE": f"complete_{shell}", **TYPED[shell]})[""]

    assert "runs" in looked.output
    assert "collect" not in looked.output
    assert set(looked.of(*SERVERS, "tidegate.settings", "tidegate.engine")) - DECLARATIONS == set()


def test_a_shell_completes_the_commands_of_a_group():
    typed = {"COMP_WORDS": "tidegate runs l", "COMP_CWORD": "2"}
    looked = imports_of([""], {"_TIDEGATE_COMPLETE": "complete_bash", **typed})[""]

    assert looked.output == "list\n"
    assert looked.of(*SERVERS, "tidegate.settings", "tidegate.app") == []


@pytest.mark.parametrize("shell", TYPED)
def test_the_completion_script_of_a_shell_is_printed(shell: str):
    printed = imports_of([""], {"_TIDEGATE_COMPLETE": f"source_{shell}"})[""]

    assert printed.code == 0
    assert f"_TIDEGATE_COMPLETE=complete_{shell}" in printed.output
