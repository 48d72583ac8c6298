"""What the documentation shows runs, and prints what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, all_blocks, blocks_of
from tidegate.simulators.github import GithubSimulator, SimulatorConfig, WorldShape

EXAMPLES = all_blocks("python")


def expected_output(example: Block) -> str | None:
    """The text block right behind it, if there is one."""
    blocks = blocks_of(example.page)
    following = blocks[blocks.index(example) + 1 :][:1]
    between = example.page.read_text().splitlines()[example.line + example.text.count("\n") + 1 :]
    is_next = bool(following) and following[0].language == "text" and between[1].startswith("```text")
    return following[0].text if is_next else None


def test_the_parts_have_examples():
    assert [example.page.name for example in EXAMPLES].count("primitives.md") >= 3


def test_the_login_and_the_token_of_the_readme_are_those_of_the_simulator():
    shown = (ROOT / "README.md").read_text()
    simulator = GithubSimulator(SimulatorConfig(world=WorldShape(seed=1, users=3)))

    assert simulator.world.logins()[0] in shown
    assert simulator.token_of(simulator.world.operators()[0]) in shown


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.place)
def test_an_example_runs_and_prints_what_stands_below_it(example: Block, tmp_path: Path):
    script = tmp_path / "example.py"
    script.write_text(example.text)

    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=os.environ | {"TIDEGATE_DATA_DIR": str(tmp_path / "data")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout == (expected_output(example) or ran.stdout)
