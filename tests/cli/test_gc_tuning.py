"""Garbage collection of commands, and of processes that stay."""

import gc
import subprocess
import sys

import pytest

from tidegate.cli.running import tune_gc


@pytest.mark.full
def test_existing_objects_are_frozen_and_collections_become_less_frequent():
    before = gc.get_threshold()
    gc.unfreeze()
    try:
        tune_gc()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold()[0] > before[0]
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)


def test_a_command_collects_garbage_rarely_and_not_at_its_exit():
    program = """
import atexit, gc, sys
before = gc.get_threshold()[0]
atexit.register(lambda: print(gc.get_threshold()[0] > before, gc.get_freeze_count() > 1000))  # runs last
sys.argv[1:] = ["--version"]
from tidegate.app.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[1:] == ["True True"]
