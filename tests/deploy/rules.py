"""The files of deploy/prometheus as data."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.promql import labels_of

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"

_LIMIT = re.compile(r"(?:>|<|==)\s*([\d.]+)$")


@dataclass(frozen=True)
class Alert:
    """One rule that alerts."""

    name: str
    expression: str
    lasting: str | None
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def limit(self) -> float:
        """What its figure is compared with."""
        found = _LIMIT.search(self.expression.partition(" or ")[0].partition(" unless ")[0])
        assert found, f"{self.name} compares with nothing"
        return float(found[1])


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for group in read_yaml(PROMETHEUS / "alerts.yml")["groups"] for rule in group["rules"]]


@cache
def alerts() -> dict[str, Alert]:
    """Every alert, by its name."""
    found = [
        Alert(rule["alert"], rule["expr"], rule.get("for"), rule["labels"], rule["annotations"])
        for rule in rules()
        if "alert" in rule
    ]
    assert len({each.name for each in found}) == len(found), "a name is used twice"
    return {each.name: each for each in found}


@cache
def recorded() -> dict[str, set[str]]:
    """The figures that are computed beforehand, and their labels."""
    return {rule["record"]: labels_of(rule["expr"]) for rule in rules() if "record" in rule}


@cache
def cases() -> list[dict[str, Any]]:
    """The unit tests of the rules."""
    return read_yaml(PROMETHEUS / "alerts_test.yml")["tests"]
