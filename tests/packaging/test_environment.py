"""`make install` takes packages from where pip takes them, with uv and without."""

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from requirements.environment import parse_settings, uv_options, uv_variables

from tests.packaging.index import Index, pin, served, write_wheel

ROOT = Path(__file__).parents[2]
LISTED = """\
:env:.cert='/ca.pem'
:env:.default-timeout='180'
global.cert='/overridden.pem'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.find-links='/no/such/folder https://links.example/'
global.index-url='https://user:secret@mirror.example/simple'
global.trusted-host='mirror.example\\nother.example'
install.no-index='true'
list.format='columns'
"""
BACKEND = """\
import shutil
def build_editable(folder, config_settings=None, metadata_directory=None):
    return shutil.copy("project-1.0-py3-none-any.whl", folder).rpartition("/")[2]
"""
PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "project"
version = "1.0"
"""


def test_settings_of_pip_become_variables_of_uv():
    pip = parse_settings(LISTED)

    assert uv_options(pip) == ["--no-index"]
    assert uv_variables(pip, {"HOME": "/h", "UV_INDEX": "kept"}) == {
        "HOME": "/h",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_DEFAULT_INDEX": "https://user:secret@mirror.example/simple",
        "UV_FIND_LINKS": "https://links.example/",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX": "kept",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "mirror.example other.example",
        "UV_NATIVE_TLS": "1",
        "UV_SYSTEM_CERTS": "1",
    }


def test_without_settings_uv_uses_the_certificates_of_the_system():
    assert uv_options({}) == []
    assert uv_variables({}, {}) == {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    assert uv_variables({}, {"REQUESTS_CA_BUNDLE": "/company.pem"})["SSL_CERT_FILE"] == "/company.pem"


@pytest.fixture
def index(tmp_path: Path) -> Generator[Index]:
    """An index with one package, and a project that needs it."""
    wheel = write_wheel(tmp_path, "needed")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.txt").write_text(pin(wheel))
    write_wheel(tmp_path, "project")
    write_wheel(tmp_path / "simulators", "simulators")
    for name, folder in (("project", tmp_path), ("simulators", tmp_path / "simulators")):
        (folder / "backend.py").write_text(BACKEND.replace("project", name))
        (folder / "pyproject.toml").write_text(PROJECT.replace('project"', f'{name}"'))
    for name in ("Makefile", "requirements/environment.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    with served(tmp_path, wheel) as index:
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\ncert = {index.authority}\n")
        yield index


def make_install(folder: Path, path: str) -> str:
    """What `make install` prints, with pip's settings in a file and no other settings."""
    private = ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_", "MAKE", "VIRTUAL_ENV", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    environment |= {"PIP_CONFIG_FILE": str(folder / "pip.conf"), "PATH": path, "UV_CACHE_DIR": str(folder / "cache")}
    ran = subprocess.run(
        ["make", "install", f"PYTHON={Path(sys.executable).resolve()}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    found = [path.name for path in (folder / ".venv").glob("lib/python3*/site-packages/*.py")]
    assert {"needed.py", "project.py", "simulators.py"} <= set(found)
    return ran.stdout


def test_uv_asks_the_index_of_pip_and_trusts_its_authority(tmp_path: Path, index: Index):
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
    if uv is None or not shutil.which("pip3"):
        pytest.skip("this machine has no uv, or no pip whose settings it could use")

    printed = make_install(tmp_path, f"{Path(uv).parent}:{os.environ['PATH']}")

    assert "pip" not in printed
    assert index.agents == {"uv"}


@pytest.mark.full
def test_pip_installs_where_uv_is_not_available(tmp_path: Path, index: Index):
    without_uv = [folder for folder in os.environ["PATH"].split(":") if not shutil.which("uv", path=folder)]

    printed = make_install(tmp_path, ":".join(without_uv))

    assert "installing them with pip" in printed
    assert index.agents == {"pip"}
