"""When a cron expression comes next: across changes of the clocks, and whatever is written."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.core.errors import InvalidArgument
from tidegate.engine.schedules.store import next_time, require_cron, require_timezone

BERLIN = ZoneInfo("Europe/Berlin")


def berlin(*moment: int, fold: int = 0) -> datetime:
    return datetime(*moment, tzinfo=BERLIN, fold=fold)  # pyright: ignore[reportArgumentType]


def due_times(cron: str, timezone: str, *, after: datetime, count: int) -> list[datetime]:
    times: list[datetime] = []
    for _ in range(count):
        after = next_time(cron, timezone, after=after)
        times.append(after)
    return times


def test_a_due_time_is_in_utc_and_later_than_the_given_time():
    at_three = datetime(2026, 5, 1, 3, tzinfo=UTC)

    assert next_time("0 3 * * *", "UTC", after=at_three - timedelta(microseconds=1)) == at_three
    assert next_time("0 3 * * *", "UTC", after=at_three) == at_three + timedelta(days=1)
    assert next_time("0 3 * * *", "Europe/Berlin", after=at_three) == datetime(2026, 5, 2, 1, tzinfo=UTC)


def test_three_in_the_morning_stays_local_time_across_daylight_saving_changes():
    spring = due_times("0 3 * * *", "Europe/Berlin", after=berlin(2026, 3, 28, 12), count=2)
    autumn = due_times("0 3 * * *", "Europe/Berlin", after=berlin(2026, 10, 24, 0), count=3)

    assert [moment.hour for moment in spring] == [1, 1]  # in UTC: the 29th is the day of the change
    assert [moment.hour for moment in autumn] == [1, 2, 2]


def test_a_time_skipped_by_a_clock_change_is_due_once_right_after_it():
    """On 29 March 2026, 02:00 to 03:00 does not exist in Berlin."""
    times = due_times("30 2 * * *", "Europe/Berlin", after=berlin(2026, 3, 28, 12), count=3)

    assert [moment.astimezone(BERLIN) for moment in times] == [
        berlin(2026, 3, 29, 3, 0),
        berlin(2026, 3, 30, 2, 30),
        berlin(2026, 3, 31, 2, 30),
    ]


def test_a_time_repeated_by_a_clock_change_is_due_once():
    """On 25 October 2026, 02:00 to 03:00 comes twice in Berlin."""
    times = due_times("30 2 * * *", "Europe/Berlin", after=berlin(2026, 10, 24, 12), count=2)

    assert times == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]


def test_in_the_second_pass_of_a_repeated_hour_the_time_of_the_first_is_over():
    second_round = berlin(2026, 10, 25, 2, 10, fold=1)

    assert next_time("30 2 * * *", "Europe/Berlin", after=second_round) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25)])
def test_an_hourly_schedule_runs_in_every_hour_of_a_day_with_a_clock_change(day: tuple[int, int, int], hours: int):
    midnight = berlin(*day)
    times = due_times("0 * * * *", "Europe/Berlin", after=midnight - timedelta(minutes=1), count=hours)

    assert [b - a for a, b in pairwise(times)] == [timedelta(hours=1)] * (hours - 1)
    assert next_time("0 * * * *", "Europe/Berlin", after=times[-1]).astimezone(BERLIN).day == day[2] + 1


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "30", "*/15", "5,50", "10-20"]),
    st.sampled_from(["*", "0", "2", "3", "*/6", "1-4", "23"]),
    st.sampled_from(["*", "1", "31", "L", "*/10"]),
    st.sampled_from(["*", "2", "3,10", "OCT"]),
    st.sampled_from(["*", "0", "MON", "1-5", "SUN#1", "5L"]),
).map(" ".join)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago"]
)
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))  # noqa: DTZ001


@settings(max_examples=examples(80), deadline=None)
@given(cron=FIELDS, zone=ZONES, after=MOMENTS)
def test_the_next_due_time_is_later_and_no_matching_time_lies_between(cron: str, zone: str, after: datetime):
    try:
        due = next_time(cron, zone, after=after)
    except InvalidArgument as error:
        assert "31" in cron or "L" in cron or "within fifty years" in str(error)  # noqa: PT017
        return

    assert due > after
    assert (due.second, due.microsecond) == (0, 0)
    between = after + (due - after) / 2
    assert next_time(cron, zone, after=between) == due


@settings(max_examples=examples(80), deadline=None)
@given(cron=st.text(alphabet="0123456789*/,-#L WMONFEB", max_size=40) | st.text(max_size=20))
def test_any_text_is_a_cron_expression_or_refused_with_a_defined_error(cron: str):
    try:
        plain = require_cron(cron)
        assert next_time(plain, "UTC", after=datetime(2026, 1, 1, tzinfo=UTC))
    except InvalidArgument as error:
        assert error.name == "cron"  # noqa: PT017


@pytest.mark.parametrize(
    "cron", ["", "0 3 * *", "* * * * * *", "61 3 * * *", "0 3 * * MOON", "0 3 * * 1#2/2", "x" * 200]
)
def test_an_invalid_cron_expression_is_refused_with_an_example(cron: str):
    with pytest.raises(InvalidArgument, match=r"five fields|at most"):
        require_cron(cron)


def test_extra_spaces_in_a_cron_expression_are_ignored():
    assert require_cron("  0  3\t* * * ") == "0 3 * * *"


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../etc/passwd", "Europe", "/etc/localtime", "x" * 100, "a\0b"])
def test_an_unknown_time_zone_is_refused(zone: str):
    with pytest.raises(InvalidArgument, match="timezone"):
        require_timezone(zone)
