"""The guide shows the code that runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks_of

GUIDE = ROOT / "docs" / "guides" / "write-a-source.md"
EXAMPLE = ROOT / "examples" / "own_source.py"
TESTS = ROOT / "tests" / "guides" / "test_bookshop.py"
SHOWN = [block for block in blocks_of(GUIDE) if block.language == "py"]


def lines_of_code(text: str) -> int:
    return sum(bool(line.strip()) and not line.strip().startswith(('"""', "#")) for line in text.splitlines())


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.place)
def test_the_code_of_the_guide_equals_the_example(block: Block):
    assert block.text in EXAMPLE.read_text() or block.text in TESTS.read_text()


def test_the_guide_shows_the_complete_source_in_about_fifty_lines():
    text = EXAMPLE.read_text()
    source = text[text.index("GENRES, BOOKS =") : text.index("class Bookshop:")]
    shown = "".join(block.text for block in SHOWN)

    assert [line for line in source.splitlines() if line.strip() and line not in shown] == []
    assert lines_of_code(source) <= 60


@pytest.mark.full
def test_the_example_prints_the_output_of_the_guide(tmp_path: Path):
    [expected] = [block.text for block in blocks_of(GUIDE) if block.language == "text"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}

    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLE], cwd=tmp_path, env=kept, capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == expected
