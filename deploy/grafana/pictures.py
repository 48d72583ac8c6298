"""Panels that dashboards repeat: levels, rates, counts within a time range, durations, states.

A level is a state of the whole deployment, reported by every process: the maximum is shown. What is counted is each
process's own: the sum.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.grafana.panels import Panel

RATE = "[$__rate_interval]"


def stat(title: str, expression: str, *, unit: str = "short", alerts: Sequence[str] = ()) -> Panel:
    """One figure, large."""
    return Panel(title, [(expression, "")], unit=unit, alerts=alerts, kind="stat", width=4, height=4)


def level(title: str, metric: str, by: str = "deployment", *, where: str = "", **options: Any) -> Panel:
    """How much there is."""
    return Panel(title, [(f"max by ({by}) ({metric}{{{where}@}})", _named(by))], **options)


def parts(title: str, metric: str, by: str, **options: Any) -> Panel:
    """How much each process has, added up."""
    return Panel(title, [(f"sum by ({by}) ({metric}{{@}})", _named(by))], **options)


def rate(title: str, metric: str, by: str, *, unit: str = "ops", **options: Any) -> Panel:
    """How much happens in a second."""
    return Panel(title, [(rate_of(metric, by), _named(by))], unit=unit, **options)


def within(title: str, metric: str, span: str, by: str = "deployment", *, where: str = "", **options: Any) -> Panel:
    """How much happened within a span."""
    return Panel(title, [(f"sum by ({by}) (increase({metric}{{{where}@}}[{span}]))", _named(by))], **options)


def spans(title: str, metric: str, by: str = "", **options: Any) -> Panel:
    """How long it takes, in seconds: 95 of 100 of each kind, or, of all together, half, 95 and 99 of 100."""
    rates = f"sum by ({', '.join(filter(None, [by, 'le']))}) (rate({metric}_bucket{{@}}{RATE}))"
    shown = {0.95: f"{_named(by)} 95 %"} if by else {0.5: "half", 0.95: "95 %", 0.99: "99 %"}
    queries = [(f"histogram_quantile({share}, {rates})", name) for share, name in shown.items()]
    return Panel(title, queries, unit="s", **options)


def states(title: str, expression: str, by: str, words: Mapping[int, tuple[str, str]], **options: Any) -> Panel:
    """A band of states over time."""
    return Panel(title, [(expression, _named(by))], kind="state-timeline", words=words, **options)


def rate_of(metric: str, by: str) -> str:
    """The query of a rate."""
    return f"sum by ({by}) (rate({metric}{{@}}{RATE}))"


def _named(by: str) -> str:
    return " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
