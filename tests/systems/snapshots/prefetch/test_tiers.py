"""Fixed tiers: how often, and how evenly."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.policies import FixedTiers, SubjectFacts, Tier, next_position, tier_of
from tidegate.systems.snapshots.settings import PrefetchSettings

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
SETTINGS = PrefetchSettings()
PERIODS = {Tier.HOT: timedelta(hours=1), Tier.WARM: timedelta(hours=6), Tier.COLD: timedelta(hours=24)}
READ_BEFORE = {Tier.HOT: timedelta(hours=2), Tier.WARM: timedelta(days=3), Tier.COLD: timedelta(days=30)}
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("read_before", "tier"),
    [
        (timedelta(0), Tier.HOT),
        (timedelta(days=1), Tier.HOT),
        (timedelta(days=1, seconds=1), Tier.WARM),
        (timedelta(days=7), Tier.WARM),
        (timedelta(days=7, seconds=1), Tier.COLD),
        (None, Tier.COLD),
    ],
)
def test_a_recently_read_subject_is_hot(read_before: timedelta | None, tier: Tier):
    assert tier_of(None if read_before is None else NOON - read_before, NOON, SETTINGS) is tier


def test_a_subject_that_was_never_checked_is_due_immediately():
    assert FixedTiers(SETTINGS).due_at(SubjectFacts(subject=SnapshotSubject("character", "new")), NOON) == NOON


@given(key=st.integers(0, 10**9), tier=st.sampled_from(list(Tier)), checked_before=st.floats(0, 0.999))
def test_the_time_between_two_checks_is_about_the_period_of_the_tier(key: int, tier: Tier, checked_before: float):
    period = PERIODS[tier]
    checked_at = NOON - checked_before * period
    facts = SubjectFacts(
        subject=SnapshotSubject("character", str(key)),
        last_checked_at=checked_at,
        last_asked_at=NOON - READ_BEFORE[tier],
    )

    waits = FixedTiers(SETTINGS).due_at(facts, NOON) - checked_at

    assert 0.25 * period < waits <= 1.25 * period


@given(after=moments, period=st.timedeltas(timedelta(minutes=1), timedelta(days=30)), place=st.floats(0, 1))
def test_a_position_occurs_once_in_every_period(after: datetime, period: timedelta, place: float):
    first = next_position(after, period, place)

    assert after < first <= after + period
    assert next_position(first, period, place) == first + period


@pytest.mark.parametrize("tier", list(Tier))
def test_subjects_checked_at_the_same_time_are_spread_evenly(tier: Tier):
    """Twelve thousand at once, over twelve parts of the period: within 10 % of a thousand each, round after round."""
    policy, period, crowd = FixedTiers(SETTINGS), PERIODS[tier], 12_000
    checked = dict.fromkeys((SnapshotSubject("character", f"c{n}") for n in range(crowd)), NOON)
    for _ in range(3):
        for subject, at in checked.items():
            facts = SubjectFacts(subject=subject, last_checked_at=at, last_asked_at=at - READ_BEFORE[tier])
            checked[subject] = policy.due_at(facts, at)

    parts = Counter((at - NOON) % period // (period / 12) for at in checked.values())

    assert len(parts) == 12
    assert all(abs(count - crowd / 12) < 0.1 * crowd / 12 for count in parts.values()), parts


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "random"},
        {"timezone": "Mars/Olympus"},
        {"evening_begins": 23, "evening_ends": 19},
        {"hot_every": "2h", "warm_every": timedelta(hours=1)},
        {"shortest": timedelta(days=2)},
        {"daily_budget": -1},
        {"rate": 0},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]):
    with pytest.raises(ValidationError):
        PrefetchSettings.model_validate(wrong)
