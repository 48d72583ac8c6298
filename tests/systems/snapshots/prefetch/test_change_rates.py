"""What is learned from checks about change rates."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.prefetch.policies import LEAST_RATE, MOST_RATE, PRIOR_RATE, learn

checks = st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=60)


def learned(rate: float, intervals: list[float], seed: int) -> float:
    """After checks at these intervals of a subject that changes so often."""
    chance, estimate, changes = random.Random(seed), None, 0
    for interval in intervals:
        changed = chance.expovariate(rate) < interval
        estimate = learn(estimate, changes, interval, changed=changed)
        changes += changed
    assert estimate is not None
    return estimate


@given(checks=checks, first=st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_rate_stays_within_its_bounds(checks: list[tuple[float, bool]], first: float | None):
    rate, changes = first, 0
    for interval, changed in checks:
        rate = learn(rate, changes, interval, changed=changed)
        changes += changed
        assert LEAST_RATE <= rate <= MOST_RATE


@given(rate=st.floats(LEAST_RATE * 1.01, MOST_RATE * 0.5), changes=st.integers(0, 100), interval=st.floats(1e-6, 400))
def test_a_change_raises_the_rate_and_no_change_lowers_it(rate: float, changes: int, interval: float):
    assert learn(rate, changes, interval, changed=True) >= rate * (1 - 1e-9)
    assert learn(rate, changes, interval, changed=False) < rate


@given(interval=st.floats(0.001, 3), longer=st.floats(1.5, 100))
def test_a_longer_interval_makes_a_change_less_and_no_change_more_significant(interval: float, longer: float):
    assert learn(1.0, 3, interval, changed=True) >= learn(1.0, 3, interval * longer, changed=True)
    assert learn(1.0, 3, interval, changed=False) > learn(1.0, 3, interval * longer, changed=False)


def test_a_check_at_the_same_time_has_no_effect():
    """So a result that is written twice is counted once."""
    assert learn(5.0, 2, 0, changed=True) == 5.0
    assert learn(None, 0, 0, changed=False) == PRIOR_RATE


@pytest.mark.parametrize("rate", [0.02, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("scale", [0.2, 1.0, 2.0])
def test_the_estimate_converges_to_the_true_rate_from_irregular_checks(rate: float, scale: float):
    """On average over subjects, and within a factor of two for nearly each, from intervals of all lengths."""
    chance = random.Random(7)
    found = [learned(rate, [scale / rate * chance.uniform(0.1, 2.0) for _ in range(200)], seed) for seed in range(120)]

    assert sum(found) / len(found) == pytest.approx(rate, rel=0.2)
    assert sum(rate / 2 < each < rate * 2 for each in found) >= 0.95 * len(found)


def test_the_estimate_is_right_where_changes_per_time_would_be_wrong():
    """Checked every five changes: nearly every check finds one, and one per interval is a fifth of the truth."""
    found = [learned(5.0, [1.0] * 300, seed) for seed in range(60)]

    assert 3.0 < sum(found) / len(found) < 8.0


def test_a_changed_rate_is_followed():
    chance, rate, changes = random.Random(3), None, 0
    for truth in (10.0, 0.1):
        for _ in range(200):
            changed = chance.expovariate(truth) < 0.5
            rate = learn(rate, changes, 0.5, changed=changed)
            changes += changed
    assert rate is not None
    assert rate < 0.5


@pytest.mark.parametrize("nonsense", [{"changes": -1}, {"elapsed_days": -0.1}])
def test_invalid_arguments_are_refused(nonsense: dict[str, float]):
    with pytest.raises(InvalidArgument):
        learn(**{"rate": 1.0, "changes": 0, "elapsed_days": 1.0, **nonsense}, changed=True)  # pyright: ignore[reportArgumentType]
