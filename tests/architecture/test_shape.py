"""What every module has in common."""

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import pytest

from tidegate.core.transitions import check_moves

LONGEST_MODULE = 500

ALLOWED_SLEEPS: dict[str, str] = {}
"""Modules that may sleep for a fixed span, and why no blocking wait can do it."""


def names_of_moves(tree: ast.Module) -> Iterator[str]:
    """The tables of transitions at the top of a module: `MOVES`, or `RUN_MOVES`."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and (target.id == "MOVES" or target.id.endswith("_MOVES")):
                yield target.id


def is_fixed(node: ast.expr) -> bool:
    """Whether an expression is made of numbers and constants only; a wait of nothing is no wait."""
    if isinstance(node, ast.Constant):
        return node.value != 0
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if isinstance(node, ast.Attribute):
        return node.attr.isupper()
    if isinstance(node, ast.BinOp):
        return is_fixed(node.left) and is_fixed(node.right)
    return isinstance(node, ast.UnaryOp) and is_fixed(node.operand)


def fixed_sleeps(tree: ast.Module) -> Iterator[int]:
    """The lines in which somebody sleeps for a fixed span."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        is_sleep = called in {"asyncio.sleep", "anyio.sleep", "time.sleep", "sleep"}
        if is_sleep and node.args and is_fixed(node.args[0]):
            yield node.lineno


def test_every_module_has_a_docstring(modules: dict[str, ast.Module]):
    assert [path for path, tree in modules.items() if not ast.get_docstring(tree)] == []


def test_class_names_are_unique(root: Path):
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(root)))

    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_modules_stay_below_the_length_limit(root: Path, modules: dict[str, ast.Module]):
    sources = {"tidegate": root / "src", "tidegate_simulators": root / "simulators" / "src"}
    lengths = {path: len((sources[Path(path).parts[0]] / path).read_text().splitlines()) for path in modules}

    assert {path: length for path, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_every_transition_table_is_complete(modules: dict[str, ast.Module]):
    """Every state has a row and can be reached from the first one that its enumeration lists."""
    tables = [(path, name) for path, tree in modules.items() for name in names_of_moves(tree)]
    assert tables, "no table was found: does the search still work?"

    for path, name in tables:
        module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        moves = cast("dict[StrEnum, Any]", getattr(module, name))
        states = type(next(iter(moves)))
        check_moves(moves, states, initial=next(iter(states)))


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("asyncio.sleep(0.5)", [1]),
        ("asyncio.sleep(PAUSE_S)", [1]),
        ("asyncio.sleep(2 * self.PAUSE_S)", [1]),
        ("time.sleep(-(-1))", [1]),
        ("time.sleep(0.05 * 2**falls)", []),
        ("asyncio.sleep(0)", []),
        ("asyncio.sleep(backoff.delay(attempt).total_seconds())", []),
    ],
)
def test_a_fixed_sleep_is_recognised(code: str, lines: list[int]):
    assert list(fixed_sleeps(ast.parse(code))) == lines


def test_no_code_polls_at_a_fixed_interval(modules: dict[str, ast.Module]):
    """Every wait is a blocking one, or grows: a sleep for a fixed span is how polling begins."""
    sleepers = {path: list(fixed_sleeps(tree)) for path, tree in modules.items()}
    found = {path: lines for path, lines in sleepers.items() if lines}

    assert {path: lines for path, lines in found.items() if path not in ALLOWED_SLEEPS} == {}
    assert sorted(ALLOWED_SLEEPS.keys() - found.keys()) == [], "allowed, but no longer needed"
