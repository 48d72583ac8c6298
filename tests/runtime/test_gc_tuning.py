"""The search for garbage, set for a process that stays."""

import gc

import pytest

from tidegate.runtime.supervisor import tune_gc


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
