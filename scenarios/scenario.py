"""A scenario and its results."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from scenarios.machine import Cost
from scenarios.stage import On, Stage

Relation = Literal["<", "≤", "≥", "="]


BOTH = (On.STREAMS, On.KAFKA)


class Check(msgspec.Struct, frozen=True):
    """A measured figure and its target."""

    what: str
    figure: float
    relation: Relation
    target: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is as it should be."""
        match self.relation:
            case "<":
                return self.figure < self.target
            case "≤":
                return self.figure <= self.target
            case "≥":
                return self.figure >= self.target
            case "=":
                return self.figure == self.target

    @property
    def told(self) -> str:
        """The figure, for people."""
        return f"{_number(self.figure)}{self._of}"

    @property
    def wanted(self) -> str:
        """The target, for people."""
        return f"{self.relation} {_number(self.target)}{self._of}"

    @property
    def _of(self) -> str:
        return f" {self.unit}" if self.unit else ""


Play = Callable[[Stage], Awaitable[list[Check]]]


class Scenario(msgspec.Struct, frozen=True):
    """One of the sixteen."""

    number: int
    title: str
    play: Play
    on: tuple[On, ...] = BOTH


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one, on one transport."""

    number: int
    title: str
    on: On
    took_s: float
    cost: Cost
    checks: list[Check] = []
    trouble: str | None = None
    """Why it could not be played to its end."""
    missing: str | None = None
    """Which server this machine lacks for it."""

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it. One that could not be played here for want of a server says nothing."""
        return self.trouble is None and all(check.passed for check in self.checks)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.1f}"
