"""The catalogues of log events and of metrics say what the code does, no more and no less."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from prometheus_client.metrics import MetricWrapperBase

from tidegate.core.plugins import all_metrics, load_system
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.catalogue import EVENTS

NO_METRICS = {"REGISTRY", "BRIEF_S", "LONG_S"}
"""Constants beside the metrics."""
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log"}
TELEMETRY = "tidegate/core/telemetry/"
QUIETS_LIBRARIES = {
    "tidegate/http/server.py": "the server logs a warning for each request that is wrong",
    "tidegate/storage/sql/pooled.py": "a driver logs each remark of the server as a warning",
    "tidegate/systems/snapshots/transports/kafka/connection.py": "a driver logs the password at the level debug",
}
"""Modules that touch the standard logging, to set a library's level only."""
MODULES_OF_METRICS = {module.__name__: module for module in (metrics, *all_metrics().values())}
METRICS = {
    (module.__name__, name)
    for module in MODULES_OF_METRICS.values()
    for name, value in vars(module).items()
    if isinstance(value, MetricWrapperBase)
}


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


def module_name(path: str) -> str:
    """The name under which a module is imported, by its path below `src`."""
    return path.removesuffix(".py").replace("/", ".")


def imported(tree: ast.Module) -> set[str]:
    """The top-level packages that a module imports."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def used_metrics(tree: ast.Module) -> set[tuple[str, str]]:
    """Every `metrics.NAME`, and every name imported from a module of metrics, with the name of the module."""
    used: set[tuple[str, str]] = set()
    aliases = dict[str, str]()
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES_OF_METRICS:
            used |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported_modules = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            aliases |= {name: place for name, place in imported_modules.items() if place in MODULES_OF_METRICS}
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            used.add((aliases[node.value.id], node.attr))
    return {(module, name) for module, name in used if name.isupper() and name not in NO_METRICS}


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
    used: set[tuple[str, str]] = set()
    for path, tree in modules.items():
        if module_name(path) not in MODULES_OF_METRICS:
            used |= used_metrics(tree)

    assert sorted(METRICS - used) == [], "defined, but used nowhere"
    assert sorted(used - METRICS) == [], "used, but not defined"


def test_metrics_are_defined_only_in_the_modules_that_systems_declare(modules: dict[str, ast.Module]):
    defining = {module_name(path) for path, tree in modules.items() if "prometheus_client" in imported(tree)}

    assert defining == MODULES_OF_METRICS.keys()


@pytest.mark.parametrize("name", all_metrics())
def test_the_metrics_of_a_system_are_in_its_folder(name: str):
    system = load_system(name)

    assert system.metrics == f"{type(system).__module__.rpartition('.')[0]}.metrics"
