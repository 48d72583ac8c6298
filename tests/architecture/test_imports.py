"""Imports point one way."""

import subprocess
import sys
from pathlib import Path


def test_the_import_contract_holds(root: Path):
    """The contract stands in pyproject.toml; its checker says which import breaks it."""
    checker = Path(sys.executable).parent / "lint-imports"

    checked = subprocess.run(
        [checker, "--config", "pyproject.toml", "--no-cache"], cwd=root, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_module_has_a_catch_all_name(root: Path):
    """A module that is named after nothing in particular attracts everything."""
    shapeless = {"utils", "util", "common", "helpers", "helper", "misc", "types"}

    found = [
        str(path)
        for source in ("src", "simulators/src")
        for path in (root / source).rglob("*")
        if path.stem in shapeless
    ]

    assert found == []
