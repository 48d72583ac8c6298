"""Fails the test that leaves a connection open.

The garbage collector closes a connection that nothing refers to. It warns while another test runs, and pytest reports
that test. This plugin collects the garbage at the end of a test that leaves more sockets open than it found. To list
the open files costs far less than to collect the garbage after every test.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.unraisableexception import collect_unraisable

_OPEN_FILES = Path("/proc/self/fd")


class OpenConnections:
    """The plugin; it does nothing where there is no /proc."""

    def __init__(self) -> None:
        self._before = set[str]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """List the sockets that are open before the test."""
        self._before = open_sockets()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Raise the warnings about connections that only this test can have left open."""
        try:
            return (yield)
        finally:
            if open_sockets() - self._before:
                gc.collect()
                collect_unraisable(item.config)


def open_sockets() -> set[str]:
    """The sockets of this process, by inode; empty where there is no /proc."""
    if not _OPEN_FILES.exists():
        return set()
    return {name for path in _OPEN_FILES.iterdir() if (name := _target(path)).startswith("socket:")}


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # closed after the folder was listed
        return ""
