"""A small simulation of prefetch; `make bench ONLY=prefetch` runs it in full."""

import pytest
from bench.prefetch_simulation import Population, compare

from tidegate.core.errors import InvalidArgument


@pytest.mark.full
def test_learned_rates_leave_a_third_less_stale_than_fixed_tiers_with_no_more_calls():
    found = compare(Population(subjects=250), seed=11, days=4, warm_up=6)

    assert found.learned.by_subject <= 0.7 * found.tiers.by_subject
    assert found.learned.by_reader < found.tiers.by_reader
    assert found.learned.calls_per_day <= 1.01 * found.tiers.calls_per_day


def test_with_equal_change_rates_learning_has_no_effect():
    found = compare(Population(subjects=150, change_spread=0.0), seed=11, days=3, warm_up=4)

    assert found.learned.by_subject >= 0.95 * found.uniform.by_subject


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument):
        compare(Population(subjects=1), seed=1, days=0)
