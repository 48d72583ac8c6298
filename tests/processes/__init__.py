"""Processes of the tests that start warm: forked from one that has imported everything.

A fork is a process like any other: it has its own memory, threads and connections, and can be killed. What it spares is
the start, which takes longer than most of what the tests have such a process do.
"""

from tests.processes.warm import WarmProcess, start_warm

__all__ = ["WarmProcess", "start_warm"]
