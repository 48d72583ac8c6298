"""The planner requests all due subjects, within the budget."""

import asyncio
from datetime import timedelta
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.systems.snapshots.prefetch.planner_world import NOON, TODAY, Planning, planning_at
from tidegate.core.errors import ContractBroken, ServerRefused, TidegateError, ValkeyUnavailable
from tidegate.core.priority import Priority
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares
from tidegate.systems.snapshots.prefetch.planner import PrefetchPlanner
from tidegate.systems.snapshots.prefetch.policies import FixedTiers
from tidegate.systems.snapshots.prefetch.queries import count_subjects, prefetch_status
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.sampling import SAMPLE_PLACES
from tidegate.systems.snapshots.settings import PrefetchSettings


@pytest.mark.full
async def test_every_subject_is_requested_once_per_period(planning_everywhere: Planning):
    planning = planning_everywhere
    keys = [f"c{n:02}" for n in range(20)]
    await planning.check(keys)

    await planning.run_for(planning.planner(), timedelta(days=4))

    counts = [sum(request.subject.key == key for request in planning.requests.published) for key in keys]
    assert set(counts) <= {3, 4}
    request = planning.requests.published[0]
    assert (request.priority, request.reason) == (Priority.LOW, Reason.PREFETCH)
    assert request.known_version > 0
    spent = [await planning.spent(TODAY + timedelta(days=n)) for n in range(5)]
    assert sum(spent) == len(planning.requests.published)


async def test_without_subjects_nothing_is_planned(planning: Planning):
    assert await planning.planner().fire() is None


async def test_the_planner_sleeps_until_the_next_subject_is_due(planning: Planning):
    await planning.check(["hero"])
    wait_ms = await planning.planner().fire()

    due = await planning.due("hero")
    assert due is not None
    assert wait_ms is not None
    assert timedelta(milliseconds=wait_ms - 1) <= due - NOON <= timedelta(milliseconds=wait_ms)
    assert planning.requests.published == []


async def test_a_subject_refreshed_for_a_reader_is_not_requested(planning: Planning):
    await planning.check(["hero"])
    await planning.set_due(["hero"], NOON + timedelta(minutes=1))
    planning.clock.advance(timedelta(minutes=1))

    await planning.planner().fire()

    due = await planning.due("hero")
    assert planning.requests.published == []
    assert due is not None
    assert due > planning.clock.now()
    assert await planning.spent() == 0


@pytest.mark.every_server
async def test_a_subject_that_is_read_is_checked_within_an_hour(planning_everywhere: Planning):
    planning = planning_everywhere
    await planning.check(["hero", "mage"])
    await planning.planner().fire()
    mage = await planning.due("mage")

    asked = {SnapshotSubject("character", "hero"): NOON}
    await planning.database.transaction(store.record_reads, asked)
    await planning.database.transaction(store.record_reads, asked)

    hero = await planning.due("hero")
    assert hero is not None
    assert hero <= NOON + timedelta(hours=1)
    assert await planning.due("mage") == mage
    await planning.run_for(planning.planner(), timedelta(hours=3))
    assert {request.subject.key for request in planning.requests.published} >= {"hero"}


async def test_calls_never_exceed_the_target_rate(planning: Planning):
    keys = [f"c{n:03}" for n in range(300)]
    await planning.check(keys)
    await planning.set_due(keys, NOON)
    planning.clock.advance(timedelta(days=2))

    fired = await planning.run_for(planning.planner(rate=50), timedelta(seconds=30))

    assert sum(count for _, count in fired) == 300
    for begin, _ in fired:
        assert sum(count for at, count in fired if begin <= at < begin + timedelta(seconds=1)) <= 50
    assert fired[-1][0] - fired[0][0] < timedelta(seconds=6.5)


async def test_a_spent_budget_waits_for_the_next_day_of_the_time_zone(planning: Planning):
    keys = [f"c{n:02}" for n in range(30)]
    await planning.check(keys)
    planning.clock.advance(timedelta(days=2))
    await planning.set_due(keys, NOON)
    planner = planning.planner(daily_budget=10, timezone="Asia/Seoul", rate=10_000, evening_rate=10_000)

    fired = await planning.run_for(planner, timedelta(hours=3))
    assert sum(count for _, count in fired) == 10
    assert await planning.spent(TODAY + timedelta(days=2)) == 10

    fired = await planning.run_for(planner, timedelta(hours=24))
    assert sum(count for _, count in fired) == 10
    assert await planning.spent(TODAY + timedelta(days=3)) == 10


async def test_a_refresh_already_in_progress_costs_no_budget_and_is_planned_again(planning: Planning):
    await planning.check(["hero"])
    planning.clock.advance(timedelta(days=2))
    planning.requests.under_way.add(SnapshotSubject("character", "hero"))

    await planning.run_for(planning.planner(), timedelta(seconds=1), finishes=False)

    due = await planning.due("hero")
    assert due is not None
    assert due > planning.clock.now()
    assert (len(planning.requests.coalesced), await planning.spent()) == (1, 0)


@pytest.mark.parametrize(
    "error", [ValkeyUnavailable("away"), ServerRefused("Valkey", "it is out of memory", remedy="Raise its maxmemory")]
)
async def test_while_the_server_is_unavailable_or_refuses_subjects_stay_due_without_cost(
    planning: Planning, error: TidegateError
):
    keys = [f"c{n}" for n in range(10)]
    await planning.check(keys)
    planning.clock.advance(timedelta(days=2))
    planner = planning.planner()
    planning.requests.trouble = lambda request: error if request.subject.key >= "c5" else None

    with pytest.raises(type(error)):
        await planner.fire()
    assert len(planning.requests.published) == 5
    assert await planning.spent(TODAY + timedelta(days=2)) == 5

    planning.requests.trouble = lambda _: None
    await planning.run_for(planner, timedelta(seconds=1))
    assert {request.subject.key for request in planning.requests.published} == set(keys)


async def test_a_subject_with_an_invalid_request_does_not_delay_others(planning: Planning):
    await planning.check(["bad", "good"])
    planning.clock.advance(timedelta(days=2))
    planning.requests.trouble = lambda request: ContractBroken("no such kind") if request.subject.key == "bad" else None

    await planning.run_for(planning.planner(), timedelta(seconds=1))

    due = await planning.due("bad")
    assert [request.subject.key for request in planning.requests.published] == ["good"]
    assert due is not None
    assert due > planning.clock.now()


class Death(BaseException):
    """Ends a planner at a certain step, as a kill does."""


class DyingRequests:
    """Dies before or after the refresh_requests are published."""

    def __init__(self, planning: Planning, *, before: bool) -> None:
        self._planning, self._before = planning, before

    async def publish_many(self, refresh_requests: list[RefreshRequest]) -> list[object]:
        if not self._before:
            await self._planning.requests.publish_many(refresh_requests)
        raise Death


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("finished", [True, False])
async def test_a_crash_between_two_steps_loses_no_subject_and_causes_no_second_call(
    planning: Planning, before: bool, finished: bool
):
    keys = [f"c{n}" for n in range(10)]
    await planning.check(keys)
    planning.clock.advance(timedelta(days=2))
    first = PrefetchPlanner(planning.database, DyingRequests(planning, before=before), PrefetchSettings())  # pyright: ignore[reportArgumentType]
    with pytest.raises(Death):
        await first.fire()
    if finished:
        await planning.finish()

    planning.clock.advance(timedelta(seconds=10))  # until the next leader is there
    await planning.run_for(planning.planner(), timedelta(seconds=5), finishes=False)

    assert sorted(request.subject.key for request in planning.requests.published) == keys
    for key in keys:
        due = await planning.due(key)
        assert due is not None
        assert due > planning.clock.now()


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_concurrent_reservations_do_not_exceed_the_budget(planning_everywhere: Planning):
    planning = planning_everywhere
    await planning.check([f"c{n:02}" for n in range(30)])
    planning.clock.advance(timedelta(days=2))
    await planning.set_due([f"c{n:02}" for n in range(30)], NOON)
    settings = PrefetchSettings(daily_budget=25)
    policy, lanes, hours = FixedTiers(settings), TierShares(settings), CallBudget(settings)

    booked = await asyncio.gather(
        *(planning.database.transaction(queries.book, policy, lanes, hours, 10) for _ in range(6))
    )

    assert sorted(len(each.subjects) for each in booked) == [0, 0, 0, 5, 10, 10]
    assert await planning.spent(TODAY + timedelta(days=2)) == 25


@pytest.mark.every_server
@pytest.mark.race
async def test_two_assumed_leaders_do_not_exceed_the_budget(planning_everywhere: Planning):
    planning = planning_everywhere
    keys = [f"c{n:03}" for n in range(60)]
    await planning.check(keys)
    planning.clock.advance(timedelta(days=2))
    await planning.set_due(keys, NOON)
    planners = [planning.planner(daily_budget=25, rate=1000, evening_rate=1000) for _ in range(2)]

    async def fire(planner: PrefetchPlanner) -> None:
        for _ in range(4):
            await planner.fire()

    await asyncio.gather(*map(fire, planners))

    assert len(planning.requests.published) <= 25
    assert len(planning.requests.published) == len({request.subject for request in planning.requests.published})
    assert await planning.spent(TODAY + timedelta(days=2)) == len(planning.requests.published)


@pytest.mark.full
@settings(max_examples=examples(4), deadline=None)
@given(
    subjects=st.integers(1, 60),
    budget=st.integers(0, 40),
    rate=st.integers(1, 500),
    away=st.sets(st.integers(0, 59), max_size=10),
    policy=st.sampled_from(["tiers", "learned"]),
)
def test_no_day_costs_more_than_its_budget(
    tmp_path_factory: pytest.TempPathFactory, subjects: int, budget: int, rate: int, away: set[int], policy: str
):
    async def live(folder: Path) -> None:
        async with planning_at(await migrated_file(folder / "budget.db")) as planning:
            await planning.check([f"c{n:02}" for n in range(subjects)])
            unwell = {f"c{n:02}" for n in away}
            planning.requests.trouble = lambda request: ContractBroken("no") if request.subject.key in unwell else None
            planner = planning.planner(daily_budget=budget, rate=rate, evening_rate=rate, policy=policy)
            fired = await planning.run_for(planner, timedelta(days=1.5))
            days: dict[object, int] = {}
            for at, count in fired:
                days[at.date()] = days.get(at.date(), 0) + count
            assert all(count <= budget for count in days.values())

    asyncio.run(live(tmp_path_factory.mktemp("budget")))


@pytest.mark.full
async def test_learned_rates_check_changing_subjects_more_often_at_the_same_cost(planning: Planning):
    still, moving = [f"s{n}" for n in range(5)], [f"m{n}" for n in range(5)]
    await planning.check([*still, *moving])
    for hour in range(30):
        planning.clock.advance(timedelta(hours=1))
        await planning.check(still)
        if hour % 6 == 0:
            await planning.check(moving, body=b'{"hour": %d}' % hour)
    await planning.run_for(planning.planner(policy="learned", daily_budget=60), timedelta(days=3))

    def asked(keys: list[str]) -> int:
        return sum(request.subject.key in keys for request in planning.requests.published)

    assert asked(moving) > asked(still)
    price = await planning.database.read(queries.last_price)
    assert price is not None
    next_leader = planning.planner(policy="learned")
    await next_leader.fire()
    told = await planning.database.read(prefetch_status, PrefetchSettings(policy="learned"), True)
    assert told.price == price


@pytest.mark.every_server
async def test_the_status_shows_due_subjects_and_spent_calls(planning_everywhere: Planning):
    planning = planning_everywhere
    await planning.check([f"c{n}" for n in range(8)])
    await planning.database.transaction(store.record_reads, {SnapshotSubject("character", "c0"): NOON})
    await planning.set_due([f"c{n}" for n in range(3)], NOON)

    status = await planning.database.read(prefetch_status, PrefetchSettings(daily_budget=100), True)

    assert (status.due_now, status.next_due_at, status.spent, status.budget) == (3, NOON, 0, 100)
    assert status.counts is not None
    assert status.counts.tiers == {"HOT": 1, "WARM": 0, "COLD": 7}
    assert status.counts.change_rates["unknown"] == 8
    assert (status.counts.total, status.counts.sampled, status.counts.is_all) == (8, 8, True)
    assert 0 < status.calls_per_second < status.target_per_second == 250


@pytest.mark.every_server
async def test_counts_by_samples_are_unbiased(planning_everywhere: Planning):
    """Averaged over samples from all parts of the random order, the estimates are those of the whole table."""
    planning = planning_everywhere
    keys = [f"c{n:04}" for n in range(1000)]
    await planning.check(keys)
    await planning.database.transaction(
        store.record_reads, {SnapshotSubject("character", key): NOON for key in keys[:250]}
    )
    step = SAMPLE_PLACES // 50

    counted = [
        await planning.database.read(count_subjects, PrefetchSettings(), 100, start)
        for start in range(0, SAMPLE_PLACES, step)
    ]

    assert not any(each.is_all for each in counted)
    assert {each.sampled for each in counted} == {100}
    assert mean(each.total for each in counted) == pytest.approx(1000, rel=0.03)
    assert mean(each.tiers["HOT"] for each in counted) == pytest.approx(250, rel=0.06)
    assert mean(each.tiers["COLD"] for each in counted) == pytest.approx(750, rel=0.06)


async def test_without_subjects_all_counts_are_zero(planning: Planning):
    counted = await planning.database.read(count_subjects, PrefetchSettings())

    assert (counted.total, counted.sampled, counted.is_all) == (0, 0, True)
    assert set(counted.tiers.values()) == {0}


async def test_a_kind_whose_last_subject_is_deleted_meanwhile_does_not_count(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
):
    """On servers other than SQLite, each statement of a transaction sees what is committed by then."""

    def kinds_before(_tx: Transaction) -> list[str]:
        return ["character"]

    monkeypatch.setattr(queries, "kinds_of", kinds_before)
    counted = await planning.database.read(count_subjects, PrefetchSettings())

    assert (counted.total, counted.sampled, counted.is_all) == (0, 0, True)


@pytest.mark.every_server
async def test_each_check_updates_the_change_rate_of_its_subject(planning_everywhere: Planning):
    planning = planning_everywhere
    for hour in range(6):
        await planning.check(["still"])
        await planning.check(["moving"], body=b'{"hour": %d}' % hour)
        planning.clock.advance(timedelta(hours=12))

    (still, never), (moving, often) = await planning.learned("still"), await planning.learned("moving")
    assert still is not None
    assert moving is not None
    assert still == pytest.approx(1 / (1 + 2.5))  # nothing seen in two days and a half, beside a prior of one day
    assert moving > 1.5
    assert (never, often) == (1, 6)  # the first body of all is counted in the row
