"""What a package index shows of the packages, and what is in them. `make package` builds them and runs twine check."""

import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import anchors_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SIMULATORS = tomllib.loads((ROOT / "simulators" / "pyproject.toml").read_text())
HOME = "https://github.com/tidegate/tidegate/blob/main/"
PICTURES = "https://raw.githubusercontent.com/tidegate/tidegate/main/"


def readme() -> str:
    return ProjectMetadata(str(ROOT), PluginManager()).core.readme


def test_links_of_the_readme_are_absolute_and_name_files_that_exist():
    links = re.findall(r"\]\(([^)]+)\)", readme())
    own = [link.removeprefix(HOME).removeprefix(PICTURES) for link in links if link.startswith((HOME, PICTURES))]

    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []
    assert len(own) > 20
    assert [link for link in own if not (ROOT / link.partition("#")[0]).exists()] == []
    assert {f"#{name}" for name in anchors_of(ROOT / "README.md")} >= {link for link in links if link.startswith("#")}


def test_images_of_the_readme_are_image_files():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme())

    assert pictures
    assert [link for link in pictures if not link.startswith(PICTURES)] == []


def test_a_build_without_isolation_has_the_dependencies_of_an_isolated_one():
    assert PROJECT["build-system"]["requires"] == PROJECT["dependency-groups"]["build"]


def test_the_package_metadata_has_the_project_urls():
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= PROJECT["project"]["urls"].keys()


BROUGHT_BY = {
    "pydantic": "pydantic-settings",
    "pydantic-core": "pydantic-settings",
    "annotated-types": "pydantic-settings",
    "aiohttp": "aiobotocore",
    "botocore": "aiobotocore",
}
"""Distributions that a dependency always brings, because its own interface has parts of them."""


def imported_modules(folder: Path) -> Iterator[str]:
    """The names of the top-level modules that the files of a package import."""
    for file in folder.rglob("*.py"):
        for each in ast.walk(ast.parse(file.read_text())):
            if isinstance(each, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in each.names)
            elif isinstance(each, ast.ImportFrom) and each.level == 0:
                yield (each.module or "").partition(".")[0]


def test_every_package_that_is_imported_is_a_dependency():
    listed = [*PROJECT["project"]["dependencies"], *chain(*PROJECT["project"]["optional-dependencies"].values())]
    names = {canonicalize_name(Requirement(each).name) for each in listed}
    foreign = set(imported_modules(ROOT / "src")) - sys.stdlib_module_names - {"tidegate", "tidegate_simulators"}
    providers = packages_distributions()

    def is_listed(module: str) -> bool:
        found = {canonicalize_name(name) for name in providers.get(module, ())}
        return bool((found | {BROUGHT_BY[name] for name in found & BROUGHT_BY.keys()}) & names)

    assert "httptools" in foreign
    assert sorted(module for module in foreign if not is_listed(module)) == []


def packages_of(folder: Path, out: Path) -> set[str]:
    """The top-level packages in the wheel of a project."""
    (wheel,) = WheelBuilder(str(folder)).build(directory=str(out), versions=["standard"])
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def test_each_wheel_contains_only_its_own_package(tmp_path: Path):
    assert packages_of(ROOT, tmp_path) == {"tidegate"}
    assert packages_of(ROOT / "simulators", tmp_path) == {"tidegate_simulators"}


def test_both_packages_have_one_version_and_one_licence():
    version = PROJECT["project"]["version"]
    requires = {name for name, _, _ in (each.partition(">") for each in PROJECT["project"]["dependencies"])}

    assert SIMULATORS["project"]["version"] == version
    assert PROJECT["project"]["optional-dependencies"]["simulators"] == [f"tidegate-simulators=={version}"]
    assert not any(name.startswith("tidegate") for name in requires)
    assert not any(each.startswith("tidegate") for each in SIMULATORS["project"]["dependencies"])
    assert (ROOT / "simulators" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
