"""deploy/compose.yaml and deploy/Dockerfile as data, read as Docker does as far as our files need it."""

import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
_PLACE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")

OURS = ("migrate", "serve", "work")
FILLED = {
    "OPERATE_KEY": "operate-key-of-the-tests-0123456789",
    "READ_KEY": "read-key-of-the-tests-0123456789",
    "CREDENTIALS_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    **dict.fromkeys(["VALKEY_PASSWORD", "MYSQL_PASSWORD", "MYSQL_ROOT_PASSWORD", "MONGO_PASSWORD"], "secret0123"),
    "GRAFANA_PASSWORD": "secret0123",
}
"""What somebody has to fill in."""


def raw() -> str:
    return COMPOSE.read_text()


def variables() -> set[str]:
    """The names that the file takes from its surroundings."""
    return {found[1] for found in _PLACE.finditer(raw())}


def example() -> dict[str, str]:
    """.env.example: its names and values."""
    lines = [line for line in (DEPLOY / ".env.example").read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@cache
def stack() -> Mapping[str, Any]:
    """The file with everything filled in."""
    given = example() | FILLED

    def fill(found: re.Match[str]) -> str:
        value = given.get(found[1], "")
        if not value and found[2] == "?":
            raise ValueError(f"{found[1]} is missing")
        return value or (found[3] if found[2] == "-" else "")

    def walk(value: Any) -> Any:
        match value:
            case str():
                return _PLACE.sub(fill, value).replace("$$", "$")
            case list():
                return [walk(each) for each in value]
            case dict():
                return {name: walk(each) for name, each in value.items()}
            case _:
                return value

    return walk(yaml.safe_load(raw()))


def services() -> dict[str, dict[str, Any]]:
    return stack()["services"]


class Dockerfile:
    """Its instructions, each with its arguments as one text."""

    def __init__(self) -> None:
        text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
        joined = re.sub(r"\\\n\s*", "", text)
        self.steps = [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]

    def all(self, name: str) -> list[str]:
        return [step[1] for step in self.steps if step[0] == name]

    def last(self, name: str) -> str:
        return self.all(name)[-1]

    def exec_form(self, name: str) -> list[str]:
        """Its last one, as a list of words: without a shell."""
        return json.loads(self.last(name))

    @property
    def environment(self) -> dict[str, str]:
        """Of the image that is kept."""
        kept = self.steps[max(n for n, step in enumerate(self.steps) if step[0] == "FROM") :]
        words = [word for name, arguments in kept if name == "ENV" for word in shlex.split(arguments)]
        return dict(word.split("=", 1) for word in words)
