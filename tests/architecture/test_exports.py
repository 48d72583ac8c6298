"""A package names its public names three times: for type checkers, for `import *`, and for the import on first use."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
EAGER = {
    "tidegate.app.cli",  # starts a command
    "tidegate.primitives.coalescer",  # one class beside its scripts
    "tidegate.primitives.membership",  # one class, and the election, beside their scripts
    "tidegate.primitives.throttle",  # one class beside its scripts
    "tidegate.primitives.timers",  # one class beside its scripts
    "tidegate.primitives.wakeup",  # one class beside its scripts
}


def _name(file: Path) -> str:
    return ".".join(file.parent.relative_to(SOURCE).parts)


FILES = {_name(file): file for file in sorted(SOURCE.rglob("__init__.py"))}
LAZY = {name: file for name, file in FILES.items() if "lazy_exports(__name__" in "".join(file.read_text().split())}


@pytest.mark.parametrize("package", LAZY)
def test_the_export_lists_of_a_package_agree_and_every_name_exists(package: str):
    tree = ast.parse(LAZY[package].read_text())
    (guarded,) = (each for each in tree.body if isinstance(each, ast.If))
    imported = {
        alias.name: each.module for each in guarded.body if isinstance(each, ast.ImportFrom) for alias in each.names
    }
    (call,) = (each for each in ast.walk(tree) if isinstance(each, ast.Call))
    listed: dict[str, str] = ast.literal_eval(call.args[1])
    places = {name: module for module, names in listed.items() for name in names.split()}
    module = import_module(package)

    assert {name: module.removesuffix(f".{name}") for name, module in places.items()} == imported
    assert set(module.__all__) == set(places)
    assert [name for name in places if not hasattr(module, name)] == []
    assert places.keys() & {each.stem for each in LAZY[package].parent.iterdir()} == set(), "a module would hide it"


def test_only_listed_packages_import_modules_eagerly():
    eager = {
        name
        for name, file in FILES.items()
        for each in ast.parse(file.read_text()).body
        if name not in LAZY and isinstance(each, ast.Import | ast.ImportFrom)
    }

    assert eager == EAGER


def test_importing_a_module_imports_no_other_module_of_its_package():
    code = "import sys, tidegate.primitives.gate.model; print('\\n'.join(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {name for name in ran.stdout.split() if name.startswith("tidegate.primitives.gate.")} == {
        "tidegate.primitives.gate.model"
    }


def test_an_unknown_name_of_a_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'tidegate\.primitives\.gate' has no attribute 'Nothing'"):
        import_module("tidegate.primitives.gate").Nothing  # noqa: B018
