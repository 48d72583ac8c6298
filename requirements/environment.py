"""Makes virtual environments from pinned requirements, and runs uv with pip's settings.

    python requirements/environment.py install .venv requirements/dev.txt --editable . simulators
    python requirements/environment.py uv pip compile ...

uv is fast but does not read pip's settings. It is given those that say where packages come from (index, find-links,
certificates, proxy), and the certificates of the system. Variables of uv that are set already stay as they are. Where
uv cannot be had or fails, pip installs: a machine whose pip works needs no further set-up. Only the standard library.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

OWN_UV = Path(".uv")
"""Where uv is installed on a machine that has none."""
_NO_VENV = (
    f"'{sys.executable} -m venv' failed. On Debian: apt-get install python3-venv (or install uv), then run make again."
)


def parse_settings(listed: str) -> dict[str, str]:
    """The settings that `pip install` uses, from the output of `pip config list`: variables before files."""
    found = dict[str, dict[str, str]]()
    for line in listed.splitlines():
        key, separator, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if separator and section in ("global", "install", ":env:"):
            found.setdefault(section, {})[name] = str(ast.literal_eval(value))
    return {**found.get("global", {}), **found.get("install", {}), **found.get(":env:", {})}


def uv_variables(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which uv finds packages where pip finds them."""
    given = {
        "UV_SYSTEM_CERTS": "1",
        "UV_NATIVE_TLS": "1",  # the former name, for versions before 0.10
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_INDEX_STRATEGY": "unsafe-best-match" if pip.get("extra-index-url") else "",  # as pip chooses
        "UV_FIND_LINKS": ",".join(filter(_is_there, pip.get("find-links", "").split())),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": pip.get("timeout", "") or pip.get("default-timeout", ""),
    }
    found = {name: value for name, value in given.items() if value and name not in environment}
    if certificates := pip.get("cert") or environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE"):
        found["SSL_CERT_DIR" if Path(certificates).is_dir() else "SSL_CERT_FILE"] = certificates
    if certificate := pip.get("client-cert"):
        found["SSL_CLIENT_CERT"] = certificate
    if proxy := pip.get("proxy"):
        found |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    return {**environment, **found}


def uv_options(pip: Mapping[str, str]) -> list[str]:
    """Options for what uv has no variable for."""
    return ["--no-index"] if pip.get("no-index", "").lower() in ("1", "true", "yes", "on") else []


def _is_there(place: str) -> bool:
    """Whether a place of find-links can be read: pip passes over folders that do not exist, uv stops."""
    return "://" in place or Path(place).exists()


def _succeeds(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> bool:
    return subprocess.run(command, env=environment, check=False).returncode == 0


def _python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


@cache
def _own_pip() -> tuple[str, ...] | None:
    """The pip of this Python, which reads the settings that belong to it; None if it has none."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    return pip if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0 else None


def _pip_for(folder: Path) -> list[str]:
    """The command that is pip for an environment."""
    python = str(_python_of(folder))
    return [*own, "--python", python] if (own := _own_pip()) else [python, "-m", "pip", "--disable-pip-version-check"]


def _settings() -> dict[str, str]:
    """The settings of pip: of this Python's, else of that in `.uv`, else of the one on the PATH; none without a pip."""
    places = (_python_of(OWN_UV).with_name("pip"), shutil.which("pip3"), shutil.which("pip"))
    reader = _own_pip() or next(((str(place),) for place in places if place and Path(place).exists()), None)
    if reader is None:
        return {}
    listed = subprocess.run([*reader, "config", "list"], capture_output=True, text=True, check=False)
    return parse_settings(listed.stdout)


def _make(folder: Path) -> None:
    without = ["--without-pip"] if _own_pip() else []
    if not _succeeds([sys.executable, "-m", "venv", "--clear", *without, folder]):
        shutil.rmtree(folder, ignore_errors=True)
        raise SystemExit(_NO_VENV)


class Uv:
    """uv with pip's settings."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self._pip = _settings()
        self._environment = uv_variables(self._pip, os.environ)

    def run(self, *arguments: str | Path) -> bool:
        """Run it; whether it succeeded."""
        options = uv_options(self._pip) if arguments[0] == "pip" else []
        return _succeeds([self._binary, *arguments, *options], self._environment)


def find_uv() -> Uv | None:
    """The machine's uv, else one that pip installs into `.uv`; None if that fails."""
    if found := shutil.which("uv"):
        return Uv(found)
    binary = OWN_UV / "bin" / "uv"
    if not binary.exists():
        _make(OWN_UV)
        if not _succeeds([*_pip_for(OWN_UV), "install", "--quiet", "--only-binary", "uv", "uv"]):
            return None
    return Uv(str(binary))


def install(folder: Path, pins: Path, projects: Sequence[str]) -> None:
    """Make `folder` an environment with exactly these packages, and these projects as editable installations."""
    editable = [f"--editable={Path(project).resolve()}" for project in projects]
    uv = find_uv()
    if uv is not None and _install_with_uv(uv, folder, pins, editable):
        return
    print("uv could not install the packages: installing them with pip, which takes longer ...", file=sys.stderr)
    _make(folder)
    pip = [*_pip_for(folder), "install", "--quiet"]
    done = _succeeds([*pip, "--require-hashes", "-r", pins])
    if done and editable:
        done = _succeeds([*pip, "--no-deps", "--no-build-isolation", *editable])
    if not done:
        raise SystemExit(1)


def _install_with_uv(uv: Uv, folder: Path, pins: Path, editable: Sequence[str]) -> bool:
    into = ("--quiet", "--python", _python_of(folder))
    return (
        uv.run("venv", "--quiet", "--allow-existing", "--python", sys.executable, folder)
        and uv.run("pip", "install", *into, "--require-hashes", "-r", pins)
        and (not editable or uv.run("pip", "install", *into, "--no-deps", "--no-build-isolation", *editable))
    )


def main() -> None:
    """Do what the command line says."""
    if sys.argv[1:2] == ["uv"]:
        uv = find_uv()
        raise SystemExit(0 if uv is not None and uv.run(*sys.argv[2:]) else 1)
    parser = argparse.ArgumentParser(prog="environment.py", description="Makes a virtual environment.")
    parser.add_argument("command", choices=["install"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pins", type=Path)
    parser.add_argument("--editable", nargs="+", default=[], help="folders of projects to install as well")
    options = parser.parse_args()
    install(options.folder, options.pins, options.editable)


if __name__ == "__main__":
    main()
