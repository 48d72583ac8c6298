"""No test depends on the speed of the machine: tests use clocks, pauses and short limits only through tests/waiting.py.

An upper bound on elapsed time fails on a busy machine, and a fixed pause is too short there. `tests/waiting.py` has a
function for each purpose that remains. Timings are measured in `bench/`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

CLOCKS = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "time", "time_ns"}
)
LOOPS = ("loop", "get_running_loop()", "get_event_loop()")
SLEEPS = frozenset({"asyncio.sleep", "anyio.sleep", "time.sleep"})
LIMITS = {"asyncio.timeout": 0, "asyncio.wait_for": 1, "anyio.fail_after": 0}
"""Functions that end a wait, and the place of the seconds among their arguments."""
WAITS = frozenset(name.rpartition(".")[2] for name in (*SLEEPS, *LIMITS))
ALLOWED = {
    "waiting.py": "has the functions that all other tests use",
    "virtual_time.py": "replaces the clock of the event loop",
    "primitives/limiter/counting_upstream.py": "plays an upstream that notes by its own clock when calls arrive",
    "primitives/limiter/calling_process.py": "sets the wall clock of its process wrong",
    "scenarios/test_scenarios.py": "passes the time of the loop on to the tested code, and compares nothing with it",
    "servers/proxy.py": "delays each packet by the same time, as a slow network does",
    "systems/snapshots/refreshing_process.py": "sets the wall clock of its process wrong",
    "systems/snapshots/test_upstream_requests.py": "plays an upstream that notes by its own clock when calls arrive",
    "whole/upstream.py": "plays an upstream whose windows follow its own clock",
}


def names_of(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: `{"sleep": "asyncio.sleep", "t": "time"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """The dotted name of an expression, with imported names written out."""
    first, dot, rest = ast.unparse(node).partition(".")
    return names.get(first, first) + dot + rest


def last_name(node: ast.expr, names: dict[str, str]) -> str:
    """The last part of the dotted name: cheap to find, and enough to skip most expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return names.get(node.id, node.id).rpartition(".")[2] if isinstance(node, ast.Name) else ""


def is_short(node: ast.expr) -> bool:
    """Whether a limit is a number below the patience of all tests. Other expressions are not judged."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value < PATIENCE_S


def uses_of_time(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each line that reads a clock, sleeps for more than 0, or ends a wait after a short time."""
    names = names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and last_name(node, names) in CLOCKS:
            name = full_name(node, names)
            module, _, function = name.rpartition(".")
            if module == "time" or (function == "time" and module.endswith(LOOPS)):
                yield node.lineno, name
        elif isinstance(node, ast.Call) and last_name(node.func, names) in WAITS:
            name = full_name(node.func, names)
            seconds = [*node.args, *(keyword.value for keyword in node.keywords)]
            is_pause = name in SLEEPS and not (isinstance(seconds[0], ast.Constant) and seconds[0].value == 0)
            place = LIMITS.get(name, len(seconds))
            if is_pause or (place < len(seconds) and is_short(seconds[place])):
                yield node.lineno, name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time\nbegan = time.monotonic()", ["time.monotonic"]),
        ("from time import perf_counter as now\nnow()", ["time.perf_counter"]),
        ("import time\nclock = time.time", ["time.time"]),
        ("import time as t\nt.sleep(0.1)", ["time.sleep"]),
        ("import asyncio\nasyncio.get_running_loop().time()", ["asyncio.get_running_loop().time"]),
        ("loop.time()", ["loop.time"]),
        ("self._loop.time()", ["self._loop.time"]),
        ("import asyncio\nasyncio.sleep(PAUSE_S)", ["asyncio.sleep"]),
        ("from asyncio import sleep\nsleep(delay=2)", ["asyncio.sleep"]),
        ("import asyncio\nasyncio.sleep(0)", []),
        ("import asyncio\nasyncio.timeout(5)", ["asyncio.timeout"]),
        ("import asyncio\nasyncio.wait_for(task, timeout=1.5)", ["asyncio.wait_for"]),
        ("import asyncio\nasyncio.timeout(60)", []),
        ("import asyncio\nasyncio.timeout(None)", []),
        ("from datetime import datetime\ndatetime.time(moment)", []),
        ("entry.time()", []),
    ],
)
def test_direct_uses_of_time_are_recognised(code: str, found: list[str]):
    assert [name for _, name in uses_of_time(ast.parse(code))] == found


def test_no_test_uses_time_directly(root: Path):
    tests = root / "tests"
    uses = {
        str(path.relative_to(tests)): [f"line {n}: {name}" for n, name in uses_of_time(ast.parse(path.read_text()))]
        for path in sorted(tests.rglob("*.py"))
    }
    found = {path: lines for path, lines in uses.items() if lines}

    assert {path: lines for path, lines in found.items() if path not in ALLOWED} == {}, "see tests/waiting.py"
    assert sorted(ALLOWED.keys() - found.keys()) == [], "allowed, but no longer needed"
