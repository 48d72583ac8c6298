"""The architecture page and the lifecycles say what the code says."""

import importlib
import re
import tomllib
from enum import StrEnum
from typing import Any, cast

import pytest

from tests.docs.pages import ROOT, section_of

ARCHITECTURE = ROOT / "docs" / "architecture.md"
LIFECYCLES = ROOT / "docs" / "lifecycles.md"
SOURCE = ROOT / "src" / "tidegate"
TABLES = {
    "Outbox event": ("tidegate.storage.sql.outbox", "MOVES"),
    "CircuitBreaker": ("tidegate.primitives.circuit_breaker", "MOVES"),
    "Run": ("tidegate.engine.lifecycle", "RUN_MOVES"),
    "Page job": ("tidegate.engine.lifecycle", "JOB_MOVES"),
    "Admission": ("tidegate.systems.waiting_room.model", "ADMISSION_MOVES"),
    "Stored answer": ("tidegate.systems.crawl.stages", "RAW_MOVES"),
}
"""Sections of the lifecycles whose diagram is that of a module's table."""


MOST_FILES = 12
"""In a walk: a path through more files would be hard to follow."""


def layers() -> list[str]:
    """The layers of the import contract, the highest first: what counts as a part of the layout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    return [layer.replace("tidegate.", "") for layer in contract["layers"]]


def test_the_layers_are_those_of_the_import_contract():
    assert f"`{' → '.join(layers())}`" in section_of(ARCHITECTURE, "Package layout")


def test_every_folder_and_every_primitive_is_described():
    layout, primitives = section_of(ARCHITECTURE, "Package layout"), section_of(ARCHITECTURE, "The primitives")
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    groups = ("storage", "primitives", "systems")
    inner = {path.parent.name for group in groups for path in SOURCE.glob(f"{group}/*/__init__.py")}
    names = [path.parent.name for path in SOURCE.glob("primitives/*/__init__.py")]

    assert [name for name in sorted(packages) if f"  {name}/" not in layout] == []
    assert [name for name in sorted(inner) if not re.search(rf"\b{name}\b", layout)] == []
    assert [name for name in names if f"`primitives/{name}`" not in primitives] == []


@pytest.mark.parametrize(
    ("section", "folder"),
    [
        ("How a job flows", ""),
        ("How a snapshot is kept fresh", "systems/snapshots"),
        ("How a visitor joins a waiting room", "systems/waiting_room"),
    ],
)
def test_a_walkthrough_names_few_files_and_all_exist(section: str, folder: str):
    rows = re.findall(r"^\| (`[\w/]+\.py`.*?) \|", section_of(ARCHITECTURE, section), re.MULTILINE)
    files = [name for row in rows for name in re.findall(r"`([\w/]+\.(?:py|lua))`", row)]

    assert 0 < len(rows) <= MOST_FILES
    assert [name for name in files if not (SOURCE / folder / name).is_file()] == []


@pytest.mark.parametrize("section", TABLES)
def test_a_diagram_shows_the_transitions_of_its_table(section: str):
    module, name = TABLES[section]
    moves = cast("dict[StrEnum, set[StrEnum]]", getattr(cast("Any", importlib.import_module(module)), name))
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)", section_of(LIFECYCLES, section), re.MULTILINE))

    assert {(a, b) for a, b in drawn if a != b} == {(str(a), str(b)) for a in moves for b in moves[a] if a != b}


def test_every_transition_table_has_a_diagram():
    with_table = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
        if re.search(r"^(?:\w+_)?MOVES\b.*=", path.read_text(), re.MULTILINE)
    }

    assert with_table == {module for module, _ in TABLES.values()}
