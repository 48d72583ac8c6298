"""What an expression of Prometheus speaks of: its metrics and its labels. Enough of the language for our own rules."""

import re
from functools import cache

from prometheus_client.metrics import MetricWrapperBase

from tidegate.core.plugins import all_metrics
from tidegate.core.telemetry import metrics

OF_TARGETS = {"job", "instance", "deployment", "le"}
"""Labels that Prometheus gives: of the place, and of a histogram's buckets."""
OF_PROMETHEUS = {"up"}
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
}
"""Told on Linux only, so they are named here."""

_WORDS = {"and", "or", "unless", "by", "on", "without", "ignoring", "group_left", "group_right", "offset", "bool"}
_STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
_BRACES = re.compile(r"\{[^}]*\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_NAME = re.compile(r"(?<![\w:$.])[a-zA-Z_:][\w:]*(?!\w*\s*\()")
_OPENS = re.compile(r"([a-zA-Z_:][\w:]*)\s*\(")
_MATCHER = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",), "gauge": ("",)}


@cache
def told() -> dict[str, set[str]]:
    """Every series that a process can tell, and the labels that it has."""
    series: dict[str, set[str]] = {name: set() for name in OF_PROMETHEUS | OF_THE_PROCESS}
    for metric in (each for module in (metrics, *all_metrics().values()) for each in vars(module).values()):
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            labels = set(metric._labelnames)  # pyright: ignore[reportPrivateUsage]
            labels |= {"version"} if family.type == "info" else set()
            series |= {f"{family.name}{suffix}": labels for suffix in _SUFFIXES[family.type]}
    return series


def metrics_of(expression: str) -> set[str]:
    """The series and recorded figures that it asks for."""
    text = _RANGE.sub("", _BRACES.sub("", _STRING.sub("", expression)))
    text = _GROUPING.sub("", text)
    called = set(_OPENS.findall(text))
    return {name for name in _NAME.findall(text) if name not in _WORDS and name not in called}


def labels_of(expression: str) -> set[str]:
    """The labels that it selects and groups by."""
    matchers = {label for braces in _BRACES.findall(expression) for label in _MATCHER.findall(_STRING.sub("", braces))}
    groups = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",") if label.strip()}
    return matchers | groups


def faults_of(expression: str, recorded: dict[str, set[str]]) -> list[str]:
    """What it asks for that nobody tells: metrics, and labels that none of its metrics has."""
    known = told() | recorded
    named = metrics_of(expression)
    unknown = [f"{name}: nobody tells it" for name in sorted(named - known.keys())]
    had = OF_TARGETS.union(*(known[name] for name in named & known.keys()))
    return [*unknown, *(f"{label}: none of them has it" for label in sorted(labels_of(expression) - had))]
