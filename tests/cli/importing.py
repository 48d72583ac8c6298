"""What commands import: each runs in a process of its own that has loaded nothing but the list of commands.

`python -m tests.cli.importing MODULE...` reads commands from standard input, a JSON list of lists of words, and prints
what each imported. A command is a fork of this process, which has loaded the given modules: an interpreter of its own
for each would take longer than the command.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from tidegate.app.cli import app

ROOT = Path(__file__).parents[2]


class Imported(msgspec.Struct, frozen=True):
    """How a command ended, and every module that was loaded by then."""

    code: int
    output: str
    modules: frozenset[str]

    def of(self, *packages: str) -> list[str]:
        """The modules of these packages, without the packages themselves and the settings, which are always read."""
        prefixes = tuple(f"{package}." for package in packages)
        return sorted(
            name
            for name in self.modules
            if name in packages or name.startswith(prefixes)
            if not name.startswith("tidegate.") or not _is_light(name)
        )


def _is_light(name: str) -> bool:
    return name.endswith(".settings") or (ROOT / "src" / name.replace(".", "/") / "__init__.py").exists()


def imports_of(
    commands: Iterable[str], environment: Mapping[str, str] | None = None, *, loaded: Iterable[str] = ()
) -> dict[str, Imported]:
    """Run commands, one after the other, and return what each imported.

    `loaded`: modules that all of these commands may import. They are loaded once, and count as imported.
    """
    asked = list(commands)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cli.importing", *loaded],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200"} | dict(environment or {}),
        input=json.dumps([command.split() for command in asked]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = [msgspec.json.decode(line, type=Imported) for line in ran.stdout.splitlines()]
    return dict(zip(asked, found, strict=True))


def _look(arguments: list[str]) -> None:
    ended = CliRunner().invoke(app, arguments, prog_name="tidegate")
    told = {"code": ended.exit_code, "output": ended.output, "modules": sorted(sys.modules)}
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


def main() -> None:
    """Run each command in a fork."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for arguments in json.load(sys.stdin):
        child = os.fork()
        if not child:
            _look(arguments)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
