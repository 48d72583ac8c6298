"""The catalogues of log events and of metrics say what the code does, no more and no less."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from prometheus_client.metrics import MetricWrapperBase

from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.catalogue import EVENTS

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log"}
TELEMETRY = "tidegate/core/telemetry/"
QUIETS_LIBRARIES = {
    "tidegate/http/server.py": "the server logs a warning for each request that is wrong",
    "tidegate/storage/sql/pooled.py": "a driver logs each remark of the server as a warning",
    "tidegate/systems/snapshots/transports/kafka/connection.py": "a driver logs the password at the level debug",
}
"""Modules that touch the standard logging, to set a library's level only."""
METRICS = {name for name, value in vars(metrics).items() if isinstance(value, MetricWrapperBase)}


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module; most tests go through those of all modules."""
    return tuple(ast.walk(tree))


def logging_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every `log.info(...)` and `self._log.info(...)`."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if name in LOGGERS:
                yield node


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def used_metrics(tree: ast.Module) -> set[str]:
    """Every `metrics.NAME`, and every name imported from the module of metrics."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "metrics":
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module == "tidegate.core.telemetry.metrics":
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.isupper() and name != "REGISTRY"}


def test_every_event_name_is_a_string_literal(modules: dict[str, ast.Module]):
    unnamed = [
        f"{path}:{call.lineno}"
        for path, tree in modules.items()
        for call in logging_calls(tree)
        if not (call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str))
    ]

    assert unnamed == []


def test_the_event_catalogue_equals_the_logged_events(modules: dict[str, ast.Module]):
    logged = {
        call.args[0].value
        for tree in modules.values()
        for call in logging_calls(tree)
        if call.args and isinstance(call.args[0], ast.Constant)
    }

    assert sorted(map(str, logged - EVENTS.keys())) == [], "logged, but not in the catalogue"
    assert sorted(EVENTS.keys() - logged) == [], "in the catalogue, but never logged"


def test_event_names_are_dotted_sorted_and_documented():
    assert [name for name in EVENTS if not re.fullmatch(r"[a-z]+(_[a-z]+)*\.[a-z]+(_[a-z]+)*", name)] == []
    assert list(EVENTS) == sorted(EVENTS)
    assert [name for name, meaning in EVENTS.items() if not meaning.endswith(".")] == []


def test_event_facts_are_passed_as_fields(modules: dict[str, ast.Module]):
    """Nothing is interpolated, and nothing but the event stands without a name."""
    loose = [
        f"{path}:{call.lineno}" for path, tree in modules.items() for call in logging_calls(tree) if len(call.args) > 1
    ]

    assert loose == []


def test_only_listed_modules_import_logging_libraries(modules: dict[str, ast.Module]):
    around = {
        path
        for path, tree in modules.items()
        if not path.startswith(TELEMETRY) and imported(tree) & {"structlog", "logging"}
    }

    assert sorted(around - QUIETS_LIBRARIES.keys()) == []
    assert sorted(QUIETS_LIBRARIES.keys() - around) == [], "allowed, but no longer needed"


def test_defined_metrics_and_used_metrics_are_equal(modules: dict[str, ast.Module]):
    used: set[str] = set()
    for path, tree in modules.items():
        if not path.startswith(TELEMETRY):
            used |= used_metrics(tree)

    assert sorted(METRICS - used) == [], "defined, but used nowhere"
    assert sorted(used - METRICS) == [], "used, but not defined"


def test_metrics_are_defined_in_one_place(modules: dict[str, ast.Module]):
    elsewhere = [
        path
        for path, tree in modules.items()
        if path != f"{TELEMETRY}metrics.py" and "prometheus_client" in imported(tree)
    ]

    assert elsewhere == []
