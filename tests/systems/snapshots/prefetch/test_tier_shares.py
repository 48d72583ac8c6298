"""Tiers share the calls: each gets its share, and none more than it has due subjects."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.systems.snapshots.prefetch.planner_world import NOON, Planning
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch.budget import TierShares
from tidegate.systems.snapshots.prefetch.policies import Tier
from tidegate.systems.snapshots.settings import PrefetchSettings

COUNTS = st.fixed_dictionaries({tier: st.integers(0, 50) for tier in Tier})


@given(COUNTS, st.integers(1, 40))
def test_all_allowed_calls_are_made_and_no_tier_gets_more_than_its_demand(due: dict[Tier, int], most: int):
    take = TierShares(PrefetchSettings()).split(due, most).take

    assert sum(take.values()) == min(most, sum(due.values()))
    assert all(take[tier] <= due[tier] for tier in Tier)


@pytest.mark.parametrize("most", [1, 3, 10])
def test_over_time_every_tier_gets_its_share_with_any_batch_size(most: int):
    lanes, taken = TierShares(PrefetchSettings()), dict.fromkeys(Tier, 0)
    for _ in range(1000 // most):
        split = lanes.split(dict.fromkeys(Tier, 100), most)
        lanes.apply(split)
        taken = {tier: taken[tier] + split.take[tier] for tier in Tier}

    assert taken[Tier.WARM] == pytest.approx(300, abs=most + 1)
    assert taken[Tier.COLD] == pytest.approx(200, abs=most + 1)


def test_the_unused_share_of_a_tier_goes_to_tiers_that_are_read():
    lanes = TierShares(PrefetchSettings())

    assert lanes.split({Tier.HOT: 9, Tier.WARM: 0, Tier.COLD: 50}, 10).take == {Tier.HOT: 8, Tier.WARM: 0, Tier.COLD: 2}
    assert lanes.split({Tier.HOT: 1, Tier.WARM: 2, Tier.COLD: 50}, 10).take == {Tier.HOT: 1, Tier.WARM: 2, Tier.COLD: 7}


def test_shares_above_the_whole_are_refused():
    with pytest.raises(ValidationError, match="not be more than 1 together"):
        PrefetchSettings(hot_share=0.6, warm_share=0.3, cold_share=0.2)


async def test_cold_subjects_take_no_calls_from_subjects_that_are_read(planning: Planning):
    """COLD alone would use up the budget twice, and has been due for longest."""
    hot, warm, cold = [f"hot{n}" for n in range(4)], [f"warm{n}" for n in range(4)], [f"cold{n:03}" for n in range(600)]
    await planning.check([*hot, *warm, *cold])
    read_at = dict.fromkeys(warm, NOON - timedelta(days=2)) | dict.fromkeys(hot, NOON)
    asked = {SnapshotSubject("character", key): at for key, at in read_at.items()}
    await planning.database.transaction(store.record_reads, asked)
    planner = planning.planner(daily_budget=300, hot_within=timedelta(days=3), warm_within=timedelta(days=9))
    planning.clock.advance(timedelta(days=1))
    await planner.fire()
    await planning.set_due(cold, NOON - timedelta(days=1))

    await planning.run_for(planner, timedelta(days=1))

    counts = {key: sum(request.subject.key == key for request in planning.requests.published) for key in [*hot, *warm]}
    assert min(counts[key] for key in hot) >= 20  # once an hour, but for what the pace of the day puts off
    assert min(counts[key] for key in warm) >= 3
    assert sum(request.subject.key in set(cold) for request in planning.requests.published) >= 0.2 * 300


async def test_a_subject_that_is_no_longer_read_leaves_the_lane_of_read_subjects(planning: Planning):
    await planning.check(["hero", "mage"])
    await planning.database.transaction(store.record_reads, {SnapshotSubject("character", "hero"): NOON})
    planning.clock.advance(timedelta(days=30))
    await planning.set_due(["hero", "mage"], NOON)

    await planning.planner().fire()

    assert await planning.tiers() == {"hero": 2, "mage": 2}


async def test_a_subject_is_hot_as_soon_as_it_is_read(planning: Planning):
    await planning.check(["hero", "mage"])
    await planning.planner().fire()
    await planning.database.transaction(store.record_reads, {SnapshotSubject("character", "hero"): NOON})

    assert await planning.tiers() == {"hero": 0, "mage": 2}
