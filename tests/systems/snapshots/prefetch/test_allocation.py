"""How the policy `learned` spends calls, and its price."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.policies import (
    LEAST_RATE,
    MOST_RATE,
    LearnedRates,
    PriceFinder,
    SubjectFacts,
    best_interval,
    worth_of_a_check,
)
from tidegate.systems.snapshots.settings import PrefetchSettings

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
SETTINGS = PrefetchSettings()
BOUNDS = {"shortest": 1 / 144, "longest": 1.0}
rates, shapes = st.floats(LEAST_RATE, MOST_RATE), st.integers(0, 30)


@given(rate=rates, changes=shapes, every=st.floats(1e-3, 10), more=st.floats(1.001, 10))
def test_the_value_of_another_check_grows_with_the_interval(rate: float, changes: int, every: float, more: float):
    low, high = worth_of_a_check(rate, changes, every), worth_of_a_check(rate, changes, every * more)

    assert -1e-12 <= low <= high * (1 + 1e-9) + 1e-12


@given(rate=rates, changes=shapes, worth=st.floats(1e-6, 1e3))
def test_an_interval_is_within_its_bounds_and_worth_its_price(rate: float, changes: int, worth: float):
    days = best_interval(rate, changes, worth, **BOUNDS)

    assert BOUNDS["shortest"] <= days <= BOUNDS["longest"]
    if BOUNDS["shortest"] < days < BOUNDS["longest"]:
        assert worth_of_a_check(rate, changes, days) == pytest.approx(worth, rel=0.02)


def test_a_subject_that_changes_too_often_is_checked_at_the_longest_interval():
    """The known result: the calls that it would cost keep many others fresh."""
    intervals = {rate: best_interval(rate, 20, 0.05, **BOUNDS) for rate in (0.1, 1.0, 5.0, 100.0)}

    assert intervals[5.0] < intervals[1.0] < intervals[0.1]
    assert intervals[100.0] == BOUNDS["longest"]


def test_with_fewer_observations_the_interval_is_shorter():
    """One lucky change says little; it may well change seldom enough to be worth looking at."""
    assert best_interval(30.0, 1, 0.05, **BOUNDS) < best_interval(30.0, 20, 0.05, **BOUNDS)


def test_no_other_distribution_of_the_calls_is_fresher():
    """Two subjects whose rates are well known: moving a little from one to the other makes it worse, either way."""

    def freshness(rate: float, per_day: float) -> float:
        # The mean over what is not known of the rate, by drawing it.
        chance = random.Random(1)
        drawn = [chance.gammavariate(12, rate / 12) for _ in range(4000)]
        return sum(per_day / each * -(2.718281828459045 ** (-each / per_day) - 1) for each in drawn) / len(drawn)

    wide = {"shortest": 1e-4, "longest": 100.0}
    first, second = (1 / best_interval(rate, 11, 0.1, **wide) for rate in (0.5, 4.0))
    best = freshness(0.5, first) + freshness(4.0, second)
    for moved in (-0.3, 0.3):
        assert freshness(0.5, first + moved * first) + freshness(4.0, second - moved * first) < best


def test_a_frequently_read_subject_is_checked_more_often():
    def interval(read_before: timedelta | None) -> timedelta:
        asked = None if read_before is None else NOON - read_before
        facts = SubjectFacts(subject=SnapshotSubject("character", "c"), change_rate=1.0, changes=5, last_asked_at=asked)
        return LearnedRates(SETTINGS, price=0.05).interval(facts, NOON)

    assert interval(timedelta(hours=1)) < interval(timedelta(days=3)) < interval(None)


@given(rate=rates | st.none(), changes=shapes, version=st.integers(0, 2**52), price=st.floats(1e-9, 1e9))
def test_a_subject_is_due_within_a_tenth_of_its_interval(rate: float | None, changes: int, version: int, price: float):
    policy = LearnedRates(SETTINGS, price=price)
    facts = SubjectFacts(
        subject=SnapshotSubject("character", "c"),
        version=version,
        change_rate=rate,
        changes=changes,
        last_checked_at=NOON,
    )
    interval = policy.interval(facts, NOON)

    assert SETTINGS.shortest - timedelta(seconds=1) <= interval <= SETTINGS.longest
    assert 0.9 * interval <= policy.due_at(facts, NOON) - NOON <= 1.1 * interval + timedelta(seconds=1)


@pytest.mark.parametrize(("wanted_per_s", "dearer"), [(20.0, True), (5.0, False)])
def test_the_price_of_a_call_rises_when_demand_exceeds_the_budget(wanted_per_s: float, dearer: bool):
    finder = PriceFinder(NOON)
    for _ in range(int(wanted_per_s * 3600)):
        finder.observe(timedelta(hours=2), timedelta(hours=2))

    price = finder.adjust(1.0, 10.0, NOON + timedelta(hours=1))

    assert price is not None
    assert (price > 1.0) is dearer


def test_the_price_changes_after_an_hour_of_observations_and_within_bounds():
    finder = PriceFinder(NOON)
    for _ in range(1000):
        finder.observe(timedelta(hours=2), timedelta(minutes=1))

    assert finder.adjust(1.0, 1e-6, NOON + timedelta(minutes=59)) is None
    price = finder.adjust(1.0, 1e-6, NOON + timedelta(hours=1))
    assert price == pytest.approx(2.718281828459045**0.5)


def test_growing_intervals_are_detected_before_the_calls_become_fewer():
    finder = PriceFinder(NOON)
    for _ in range(36_000):
        finder.observe(timedelta(hours=1), timedelta(hours=2))

    price = finder.adjust(1.0, 5.0, NOON + timedelta(hours=1))

    assert price == pytest.approx(1.0)


def test_invalid_arguments_are_refused():
    for wrong in ({"rate": 0.0}, {"every_days": 0.0}, {"changes": -1}):
        with pytest.raises(InvalidArgument):
            worth_of_a_check(**{"rate": 1.0, "changes": 0, "every_days": 1.0, **wrong})  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument):
        LearnedRates(SETTINGS, price=0)
    with pytest.raises(InvalidArgument):
        PriceFinder(NOON).observe(timedelta(1), timedelta(0))
