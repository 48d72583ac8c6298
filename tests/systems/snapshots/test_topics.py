"""The overview of snapshots: usage of the limits, lag, and freshness of a sample."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.systems.snapshots.deployment import Deployment, deployed, game, until
from tidegate.core.priority import Priority
from tidegate.http.problems import RequestFailed
from tidegate.primitives.limiter import LimiterSettings
from tidegate.primitives.limiter.settings import Limit, Rate
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.service import OpenSnapshots
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.topics import FreshnessSample, SnapshotsOverview, SnapshotsOverviewReader, freshness_mix

_TTL = timedelta(minutes=15)


async def test_refreshed_subjects_are_fresh_and_waiting_ones_are_counted(tmp_path: Path, embedded: Valkey):
    async with game() as sim, deployed(tmp_path, embedded, sim) as deployment:
        reader = SnapshotsOverviewReader(deployment.snapshots)
        for key in (1, 2, 3):
            await deployment.read(key)
        await until(lambda: _has_lag(deployment, 3))
        waiting = await reader.read()
        async with deployment.working():
            for key in (1, 2, 3):
                await deployment.until_fresh(key)
        told = await SnapshotsOverviewReader(deployment.snapshots).read()

        assert [(kind.name, kind.ttl_s) for kind in told.kinds] == [("character", 900.0)]
        assert waiting.topics is not None
        assert [(topic.topic, topic.group, topic.lag) for topic in waiting.topics] == [
            ("update-priority-high", "high-worker", 3),
            ("update-priority-low", "low-worker", 0),
        ]
        assert told.freshness is not None
        assert (told.freshness.sampled, told.freshness.fresh, told.freshness.is_all) == (3, 3, True)
        assert told.rules is not None
        assert {rule.name: (rule.window_s, rule.per_second) for rule in told.rules} == {
            "second": (1.0, None),
            "low": (1.0, None),
            "day": (86_400.0, None),
            "sustained": (None, 450),
        }
        # A worker takes a permit again if it was held up for longer than the permit is valid.
        [used] = [rule.used for rule in told.rules if rule.name == "day"]
        assert 3 <= used <= 6
        assert (told.waiting, told.paused_until, told.dead, told.unknown) == ({"high": 0, "low": 0}, None, 0, [])
        assert told.rates is not None
        assert [(rate.priority, rate.limit) for rate in told.rates] == [("all", 500), ("high", 500), ("low", 350)]

        await deployment.snapshots.limiter.pause(timedelta(seconds=30))
        paused = (await reader.read()).paused_until
        assert paused is not None
        assert paused > datetime.now(UTC)


async def test_the_system_contributes_its_topic_and_its_dead_letters(tmp_path: Path, embedded: Valkey):
    async with game() as sim, deployed(tmp_path, embedded, sim) as deployment:
        system = OpenSnapshots(deployment.parts, deployment.snapshots)
        [topic], [dead] = system.topics(), system.dead_letters()
        assert (topic.name, type(await topic.read())) == ("snapshots", SnapshotsOverview)
        assert (dead.kind, await dead.count()) == ("snapshots", {"": 0})

        without_kinds = OpenSnapshots(deployment.parts, None)
        [topic] = without_kinds.topics()
        assert list(without_kinds.dead_letters()) == []
        with pytest.raises(RequestFailed, match="no kind of snapshots is configured"):
            await topic.read()


async def _has_lag(deployment: Deployment, lag: int) -> bool:
    return (await deployment.snapshots.recoverable[0].status()).lag == lag


async def test_calls_are_shown_by_priority_if_rules_count_them(tmp_path: Path, embedded: Valkey):
    rules = LimiterSettings(
        limits=(Limit(name="all", permits=100, window=timedelta(seconds=1)),),
        rates=(Rate(name="pace", per_second=1000, burst=100),),
        quiet_start=timedelta(0),
    )
    async with game() as sim, deployed(tmp_path, embedded, sim, limiter=rules) as deployment:
        reader = SnapshotsOverviewReader(deployment.snapshots)

        async def shown() -> list[tuple[str, float | None]]:
            await deployment.snapshots.limiter.acquire(priority=Priority.LOW, units=2)
            told = await reader.read()
            shown = [(rate.priority, rate.per_second) for rate in told.rates or ()]
            return shown if shown and shown[0][1] else []

        # On a slow machine a permit is granted twice because the first one lapsed, or is older than a second when it
        # is counted. Counts are multiples of the two units.
        rates = await until(shown)
        assert [name for name, _ in rates] == ["all", "high", "low"]
        assert rates[0][1] is not None
        assert rates[0][1] % 2 == 0
        assert [value for _, value in rates[1:]] == [None, None]


async def test_a_sample_is_bounded_and_judged_like_for_readers(tmp_path: Path, embedded: Valkey):
    async with game() as sim, deployed(tmp_path, embedded, sim) as deployment, deployment.working():
        for key in range(1, 5):
            await deployment.until_fresh(key)

        some = await _mix(deployment, _TTL, 2)
        whole = await _mix(deployment, _TTL)
        old = await _mix(deployment, -_TTL)  # what was checked just now is older than that

        assert (some.sampled, some.is_all, some.fresh) == (2, False, 2)
        assert (whole.sampled, whole.is_all, whole.fresh, whole.stale) == (4, True, 4, 0)
        assert (old.fresh, old.stale) == (0, 4)


@pytest.mark.parametrize("start", [0, 2**30, 2**31 - 1])
async def test_a_sample_is_not_limited_to_the_first_names(tmp_path: Path, embedded: Valkey, start: int):
    """Subjects are added by name in the order of time, so the first names are the oldest ones."""
    async with game() as sim, deployed(tmp_path, embedded, sim) as deployment:
        now = deployment.database.clock.now()
        rows = [
            Refreshed.of(
                SnapshotSubject("character", f"{n:04}"), 1, checked_at=now - _TTL * 2 if n < 600 else now, body=b"{}"
            )
            for n in range(1200)
        ]
        await deployment.database.transaction(store.write_round, rows, False)

        mix = await deployment.database.read(freshness_mix, {"character": _TTL}, 300, start)

        assert mix.sampled == 300
        assert 90 < mix.fresh < 210


async def _mix(deployment: Deployment, ttl: timedelta, most: int = 1000) -> FreshnessSample:
    return await deployment.database.read(freshness_mix, {"character": ttl}, most)
