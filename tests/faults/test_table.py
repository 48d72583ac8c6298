"""The guide names a test for every fault; each of them is there, and none of ours is left out."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT, section_of, table_rows

GUIDE = ROOT / "docs" / "guides" / "when-things-break.md"
PROMISED = 28
"""Rows: those of the specification, and a few more."""
NO_FAULTS = {Path(__file__).name, "test_progress.py"}
"""What is here beside them: the table, and how a campaign waits."""


def proofs() -> dict[str, list[str]]:
    """The tests that each row names."""
    return {row[0]: re.findall(r"`([^`]+)`", row[2]) for row in table_rows(section_of(GUIDE, "What was tested"))}


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def test_every_fault_names_existing_tests():
    named = proofs()

    assert len(named) == PROMISED
    assert [fault for fault, tests in named.items() if not tests] == []
    for test in (test for tests in named.values() for test in tests):
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert name in names_in(ROOT / path), test


def test_every_fault_test_is_in_the_table():
    named = {test for tests in proofs().values() for test in tests}
    ours = {
        f"tests/faults/{path.name}::{name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name not in NO_FAULTS
        for name in names_in(path)
    }
    assert ours - named == set()
