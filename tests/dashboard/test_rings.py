"""The memory behind the charts: rings of points, and how fast jobs end."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.dashboard.history import History, Sample
from tidegate.dashboard.series import JobRateMeter, JobRates
from tidegate.engine.reports.overview import EndedJobs

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def values(history: History, name: str) -> list[tuple[float, float]]:
    [series] = history.series([name])
    return series.points


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), max_size=40), st.integers(2, 6))
def test_a_series_keeps_the_newest_points_and_all_changes_between_them(seen: list[int], most: int):
    history = History(most_points=most)
    for moment, value in enumerate(seen):
        history.record(moment, {"it": Sample(value, "jobs")})
    if not seen:
        assert history.names == []
        return

    points = values(history, "it")

    assert len(points) <= most
    assert points[-1] == (len(seen) - 1, seen[-1])
    assert all(before[0] < after[0] for before, after in pairwise(points))
    # What a chart draws between two points is what was seen: either nothing was, or the same all the time.
    for (since, value), (until_s, _) in pairwise(points):
        between = seen[int(since) + 1 : int(until_s)]
        assert all(each == value for each in between)


def test_a_constant_value_is_stored_as_two_points():
    history = History(most_points=4)
    history.record(0, {"it": Sample(1, "jobs")})
    for moment in range(1, 1000):
        history.record(moment, {"it": Sample(5, "jobs")})
    history.record(1000, {"it": Sample(2, "jobs")})

    assert values(history, "it") == [(0, 1), (1, 5), (999, 5), (1000, 2)]


def test_beyond_the_limit_the_least_recently_written_series_is_dropped():
    history = History(most_series=2)
    history.record(0, {"a": Sample(1, "jobs"), "b": Sample(1, "jobs")})
    history.record(1, {"a": Sample(1, "jobs")})
    history.record(2, {"c": Sample(1, "jobs")})

    assert history.names == ["a", "c"]
    with pytest.raises(InvalidArgument):
        History(most_points=0)


def test_series_are_found_by_name_and_by_prefix():
    history = History()
    history.record(0, {name: Sample(1, "calls") for name in ("quota/a/core", "quota/b/core", "quotas", "runs/active")})
    history.record(5, {"runs/active": Sample(2, "runs")})

    assert [each.name for each in history.series(["quota/"])] == ["quota/a/core", "quota/b/core"]
    assert [each.name for each in history.series(["runs/active", "weather"])] == ["runs/active"]
    assert history.series([]) == []
    assert [(each.name, each.points) for each in history.newest()][-1] == ("runs/active", [(5, 2)])


def ended(succeeded: int, failed: int = 0, *, since: timedelta = timedelta(0)) -> EndedJobs:
    return EndedJobs(created_at=NOW + since, succeeded=succeeded, failed=failed)


def test_a_rate_counts_runs_that_ended_since_the_last_sample():
    pace = JobRateMeter()
    pace.mark_changed([1, 2])
    assert pace.take_changed() == [1, 2]
    old = timedelta(hours=-1)
    assert pace.update({1: ended(10, since=old), 2: ended(0, since=old)}, NOW, 5.0) == JobRates(0, 0), "of old: unknown"

    found = {1: ended(15, 2, since=old), 2: ended(5, since=old), 3: ended(10, since=timedelta(seconds=1))}
    assert pace.update(found, NOW + timedelta(seconds=5), 5.0) == JobRates(4.0, 0.4), (
        "all that ended of a new one counts"
    )
    assert pace.update({1: ended(15, 0, since=old)}, NOW, 5.0) == JobRates(0, 0), "tried again is not unhappened"


def test_after_a_pause_ended_runs_count_for_the_next_sample():
    pace = JobRateMeter()
    pace.update({}, NOW - timedelta(hours=1), None)
    pace.mark_changed([1])
    began = timedelta(seconds=-1)

    assert pace.update({1: ended(5, since=began)}, NOW, None) == JobRates(0, 0)
    assert pace.take_changed() == [1], "it is looked at again, though it may have ended"
    assert pace.update({1: ended(5, since=began)}, NOW, 5.0) == JobRates(1.0, 0)


def test_after_a_gap_in_the_feed_all_known_runs_are_read():
    pace = JobRateMeter()
    pace.update({1: ended(1), 2: ended(1)}, NOW, 5.0)
    pace.mark_changed(None)
    assert pace.take_changed() == [1, 2]
    assert pace.take_changed() == []
