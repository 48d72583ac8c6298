"""The search for garbage, set for a process that stays."""

import gc

import pytest

from tidegate.runtime.gc_tuning import tune_gc


@pytest.mark.full
def test_what_is_there_is_not_looked_at_again_and_what_comes_less_often():
    before = gc.get_threshold()
    gc.unfreeze()
    try:
        tune_gc()
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold()[0] > before[0]
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
