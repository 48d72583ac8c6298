"""What a package index shows of the packages, and what is in them. `make package` builds them and runs twine check."""

import re
import tomllib
import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

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
