"""What the documentation shows runs, and prints what it says."""

import ast
import os
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, all_blocks, blocks_of
from tests.processes import start_warm
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

EXAMPLES = all_blocks("python")
LONGEST_README = 200


def expected_output(example: Block) -> str | None:
    """The text block right behind it, if there is one."""
    blocks = blocks_of(example.page)
    following = blocks[blocks.index(example) + 1 :][:1]
    between = example.page.read_text().splitlines()[example.line + example.text.count("\n") + 1 :]
    is_next = bool(following) and following[0].language == "text" and between[1].startswith("```text")
    return following[0].text if is_next else None


def test_the_packages_have_examples():
    assert [example.page.name for example in EXAMPLES].count("primitives.md") >= 3


def test_login_and_token_of_the_readme_exist_in_the_simulator():
    shown = (ROOT / "README.md").read_text()
    simulator = GithubSimulator(SimulatorConfig(world=WorldShape(seed=1, users=3)))

    assert simulator.world.logins()[0] in shown
    assert simulator.token_of(simulator.world.operators()[0]) in shown


def test_the_readme_is_short_and_shows_both_commands():
    readme = ROOT / "README.md"
    commands = [block.text for block in blocks_of(readme) if block.language == "sh"]

    assert len(readme.read_text().splitlines()) <= LONGEST_README
    assert commands[0] == "make demo\nmake test\n"


@pytest.mark.full
def test_imports_of_the_examples_cause_no_warnings():
    statements = [statement for example in EXAMPLES for statement in ast.parse(example.text).body]
    imports = {ast.unparse(each) for each in statements if isinstance(each, ast.Import | ast.ImportFrom)}
    command = [sys.executable, "-W", "error", "-c", "\n".join(sorted(imports))]

    assert len(imports) > len(EXAMPLES)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
async def test_an_example_runs_and_prints_the_documented_output(example: Block, tmp_path: Path):
    script = tmp_path / "example.py"
    script.write_text(example.text)
    strictly = (
        f"import runpy, warnings; warnings.simplefilter('error'); runpy.run_path({str(script)!r}, None, '__main__')"
    )
    environment = os.environ | {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}

    ran = await start_warm(sys.executable, "-c", strictly, cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE)
    told, complained = await ran.communicate()

    assert ran.returncode == 0, complained
    # On a slow machine a campaign can be announced twice and permits can end unused: both are logged and harmless.
    harmless = (b"campaign.woken_again", b"limiter.permits_lapsed")
    assert [line for line in complained.splitlines() if not any(event in line for event in harmless)] == []
    assert told.decode() == (expected_output(example) or told.decode())
