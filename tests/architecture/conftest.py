"""The source as data: what these tests look at instead of running it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "simulators" / "src")


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def modules() -> dict[str, ast.Module]:
    """The syntax tree of every module of both distributions, by its path below `src`."""
    return {
        str(path.relative_to(source)): ast.parse(path.read_text())
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
    }
