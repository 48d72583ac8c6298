"""The public API is what `tidegate/__init__.py` and the other public modules list.

Each name exists, is documented, and is imported lazily. Examples and guides import nothing else.
"""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from reference.public_api import PUBLIC_MODULES
from tests.docs.pages import ROOT, all_blocks

import tidegate

LIGHT = """
import sys
import tidegate
print(sorted(name for name in sys.modules if name.partition(".")[0] in {"redis", "sqlalchemy", "pydantic", "msgspec"}))
print(sum(name.startswith("tidegate") for name in sys.modules))
"""


def test_every_name_exists_and_has_a_docstring():
    assert tidegate.__all__ == sorted(tidegate.__all__)
    found = {name: getattr(tidegate, name) for name in tidegate.__all__}

    undocumented = [name for name, each in found.items() if not (each.__doc__ or "").strip()]
    assert undocumented == []
    assert 40 <= len(found) <= 60


SHOWS_SCREENS = "github_demo.py"
"""It shows the screens of `tidegate collect`, which are private."""
PROGRAMS = {
    **{str(file.relative_to(ROOT)): file.read_text() for file in sorted(ROOT.glob("examples/**/*.py"))},
    **{block.place: block.text for block in all_blocks("python")},
}


def private_imports(program: str) -> list[str]:
    """The names of Tidegate that a program imports from elsewhere than the public modules."""
    imported = [
        (each.module, alias.name)
        for each in ast.walk(ast.parse(program))
        if isinstance(each, ast.ImportFrom) and (each.module or "").partition(".")[0] == "tidegate"
        for alias in each.names
    ]
    return [
        f"{module}.{name}"
        for module, name in imported
        if module not in ("tidegate", *PUBLIC_MODULES) or name not in import_module(str(module)).__all__
    ]


@pytest.mark.parametrize("place", [place for place in PROGRAMS if Path(place).name != SHOWS_SCREENS])
def test_examples_and_guides_import_only_public_names(place: str):
    assert private_imports(PROGRAMS[place]) == []


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_names_of_the_other_public_modules_exist(module: str):
    missing = [name for name in import_module(module).__all__ if not hasattr(import_module(module), name)]
    assert missing == []


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(tidegate, "no_such_name")


def test_importing_the_package_imports_no_library():
    ran = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)

    libraries, ours = ran.stdout.splitlines()
    assert libraries == "[]"
    assert int(ours) <= 4
