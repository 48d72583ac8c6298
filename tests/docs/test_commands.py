"""Every command that the documentation names exists, and those that a test can run, run."""

import json
import os
import re
import shlex
import subprocess
import sys
from asyncio.subprocess import PIPE
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, all_blocks, prose_of
from tests.processes import start_warm
from tidegate.app.cli import all_commands

BIN = Path(sys.executable).parent
COMMANDS = sorted({line for block in all_blocks("sh") for line in block.text.splitlines() if line.strip()})
OURS = sorted({line.removeprefix(".venv/bin/tidegate ") for line in COMMANDS if line.startswith(".venv/bin/tidegate ")})
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TOOLS = {"basedpyright", "pre-commit", "pytest", "ruff"}
"""Tools of others: that they are installed is all that is checked."""


RUN_ALL = """
import json, sys
from typer.testing import CliRunner
from tidegate.app.cli import app
results = [CliRunner().invoke(app, arguments.split()) for arguments in sys.argv[1:]]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in results]))
"""
"""One process for all commands: most of the time of each is spent on its start."""


async def run(*command: str, data_dir: Path, **variables: str) -> tuple[int, str, str]:
    """Run something in surroundings without any other setting; its exit code, output and errors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    surroundings = kept | {"TIDEGATE_DATA_DIR": str(data_dir)} | variables
    process = await start_warm(*command, env=surroundings, cwd=data_dir, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    return await process.wait(), out.decode(), err.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_a_project_command_or_an_installed_tool(command: str):
    first, *rest = shlex.split(command)
    if first == "make":
        assert rest[0] in TARGETS
    elif first == ".venv/bin/python":
        assert rest[0] == "-m"
        assert find_spec(rest[1])
    else:
        name = first.removeprefix(".venv/bin/")
        assert name in TOOLS | {"tidegate"}
        assert (BIN / name).exists()


def test_every_target_named_in_the_text_exists():
    """`make` without a target is one too."""
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z]+)", prose_of(page))}

    assert named, "the search finds nothing any more"
    assert named - TARGETS == set()


def test_every_tidegate_command_named_in_the_text_exists():
    named = {name for page in PAGES for name in re.findall(r"`(?:\.venv/bin/)?tidegate ([a-z][a-z-]*)", prose_of(page))}

    # Typer's own type of a group differs between its releases.
    assert named == set(all_commands()), "the command line and the documentation name the same commands"


async def test_the_documented_tidegate_commands_run_in_an_empty_folder(tmp_path: Path):
    asked = [*OURS, *(f"{each} --json" for each in OURS)]

    code, out, err = await run(sys.executable, "-c", RUN_ALL, *asked, data_dir=tmp_path)

    assert code == 0, err
    for arguments, (exit_code, stdout, stderr) in zip(asked, json.loads(out), strict=True):
        assert (exit_code, stderr) == (0, ""), f"tidegate {arguments}: {stdout}{stderr}"
        assert json.loads(stdout) if "--json" in arguments else stdout


async def test_an_unknown_setting_is_refused_by_name(tmp_path: Path):
    code, _, err = await run(str(BIN / "tidegate"), "settings", data_dir=tmp_path, TIDEGATE_BREAKER__WINDW="3")

    assert code == 1
    assert "TIDEGATE_BREAKER__WINDW: unknown setting" in err


def test_the_pre_commit_hooks_are_valid_and_run_installed_tools():
    config = ROOT / ".pre-commit-config.yaml"
    validated = subprocess.run([BIN / "pre-commit", "validate-config", config], capture_output=True, check=False)
    entries = re.findall(r"entry: \.venv/bin/(\S+)", config.read_text())

    assert validated.returncode == 0, validated.stderr
    assert re.findall(r"repo: (\S+)", config.read_text()) == ["local"]
    assert entries
    assert [entry for entry in entries if not (BIN / entry).exists()] == []
