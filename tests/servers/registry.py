"""Which servers the tests ran on, and which were missing: the table at the end of every run."""

import os
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

REQUIRE_ALL = "TIDEGATE_TEST_REQUIRE_ALL_SERVERS"
"""Set to 1 (by CI), a test whose server is missing fails instead of being skipped."""

SERVERS = (
    "Chromium",
    "Kafka",
    "MariaDB",
    "MongoDB",
    "PostgreSQL",
    "Redis",
    "S3 (moto)",
    "SQLite",
    "SQS (moto)",
    "Valkey, cluster of three",
    "Valkey, embedded",
    "nginx",
    "promtool",
)
"""All that some test uses."""

_WORKER_KEY = "tidegate_servers"


@dataclass(frozen=True, order=True)
class Entry:
    """One server: its version if it was used, the reason if it was not."""

    name: str
    used: bool
    detail: str


_entries: dict[str, Entry] = {}


def record_used(name: str, version: str) -> None:
    """Note that tests of this process run on the server `name`."""
    _entries[name] = Entry(name, used=True, detail=version)


def skip_or_fail(name: str, reason: str) -> NoReturn:
    """End the present test because `name` is missing: skipped, or failed where all are required."""
    _entries[name] = Entry(name, used=False, detail=reason)
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{name} is required by {REQUIRE_ALL}=1, and missing: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}")


class ServerTable:
    """A pytest plugin: collects the entries of all processes (pytest-xdist) and prints them.

    `left_out`: the reason to print for servers that no test of this run asked for; None: they are not printed.
    """

    def __init__(self, left_out: str | None = None) -> None:
        self._left_out = left_out

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker: hand our entries over to the process that prints."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_WORKER_KEY] = [(entry.name, entry.used, entry.detail) for entry in _entries.values()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """In the process that prints: take a worker's entries; a server that one of them used was used."""
        del error
        for name, used, detail in getattr(node, "workeroutput", {}).get(_WORKER_KEY, []):
            if used or name not in _entries:
                _entries[name] = Entry(name, used, detail)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if not _entries:
            return
        if self._left_out is not None:
            for name in SERVERS:
                _entries.setdefault(name, Entry(name, used=False, detail=self._left_out))
        terminalreporter.section("servers", sep="-")
        width = max(len(name) for name in _entries)
        for entry in sorted(_entries.values()):
            terminalreporter.line(f"{entry.name:<{width}}  {'used   ' if entry.used else 'skipped'}  {entry.detail}")
