"""Days, ISO weeks and months by the clocks of a place."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.systems.ranking.model import REACH, RankingPeriod, kept_windows, oldest_kept, window_on, windows_at

ZONES = (
    *("UTC", "Asia/Seoul", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"),
    *("Australia/Lord_Howe", "America/Santiago", "America/Havana", "Pacific/Kiritimati", "Pacific/Pago_Pago"),
)
"""Some change their clocks at midnight, by half an hour, or are a day ahead of others."""
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.timedeltas(timedelta(0), timedelta(days=10_000)).map(datetime(2012, 1, 1, tzinfo=UTC).__add__)


def names(moment: str, zone: str) -> tuple[str, ...]:
    return tuple(window.name for window in windows_at(datetime.fromisoformat(moment), ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("moment", "zone", "expected"),
    [
        ("2025-11-29T12:00:00Z", "UTC", ("2025-11-29", "2025-W48", "2025-11")),
        # At the turn of the year a week belongs to the year that has its Thursday.
        ("2024-12-29T23:59:59Z", "UTC", ("2024-12-29", "2024-W52", "2024-12")),
        ("2024-12-30T00:00:00Z", "UTC", ("2024-12-30", "2025-W01", "2024-12")),
        ("2025-12-29T00:00:00Z", "UTC", ("2025-12-29", "2026-W01", "2025-12")),
        ("2021-01-03T12:00:00Z", "UTC", ("2021-01-03", "2020-W53", "2021-01")),
        ("2027-01-01T12:00:00Z", "UTC", ("2027-01-01", "2026-W53", "2027-01")),
        # The same moment is another day, week, month and year elsewhere.
        ("2024-12-31T15:30:00Z", "UTC", ("2024-12-31", "2025-W01", "2024-12")),
        ("2024-12-31T15:30:00Z", "Asia/Seoul", ("2025-01-01", "2025-W01", "2025-01")),
        ("2026-03-01T04:30:00Z", "America/New_York", ("2026-02-28", "2026-W09", "2026-02")),
        ("2028-02-29T10:00:00Z", "Pacific/Kiritimati", ("2028-03-01", "2028-W09", "2028-03")),
    ],
)
def test_a_time_is_in_the_windows_of_its_time_zone(moment: str, zone: str, expected: tuple[str, ...]):
    assert names(moment, zone) == expected


@pytest.mark.parametrize(
    ("day", "zone", "hours", "starts"),
    [
        ("2026-03-29", "Europe/Berlin", 23, "2026-03-28T23:00:00Z"),
        ("2026-10-25", "Europe/Berlin", 25, "2026-10-24T22:00:00Z"),
        ("2026-09-06", "America/Santiago", 23, "2026-09-06T04:00:00Z"),  # midnight itself is left out
        ("2026-04-04", "America/Santiago", 25, "2026-04-04T03:00:00Z"),  # the hour before midnight comes twice
        ("2026-11-01", "America/Havana", 25, "2026-11-01T04:00:00Z"),  # the hour after midnight comes twice
        ("2026-04-05", "Australia/Lord_Howe", 24.5, "2026-04-04T13:00:00Z"),
    ],
)
def test_a_day_is_as_long_as_the_calendar_says(day: str, zone: str, hours: float, starts: str):
    window = window_on(RankingPeriod.DAILY, date.fromisoformat(day), ZoneInfo(zone))

    assert window.starts_at == datetime.fromisoformat(starts)
    assert window.ends_at - window.starts_at == timedelta(hours=hours)
    for moment in (window.starts_at, window.ends_at - timedelta(microseconds=1)):
        assert windows_at(moment, ZoneInfo(zone))[0] == window
    for moment in (window.starts_at - timedelta(microseconds=1), window.ends_at):
        assert windows_at(moment, ZoneInfo(zone))[0] != window


@given(moments, zones)
@example(datetime(2024, 12, 29, 15, tzinfo=UTC), ZoneInfo("Asia/Seoul"))
def test_windows_are_named_by_the_calendar_and_contain_their_times(moment: datetime, zone: ZoneInfo):
    local = moment.astimezone(zone)
    windows = windows_at(moment, zone)

    assert [window.name for window in windows] == [local.strftime(form) for form in ("%Y-%m-%d", "%G-W%V", "%Y-%m")]
    assert [window.period for window in windows] == list(RankingPeriod)
    assert all(window.starts_at <= moment < window.ends_at for window in windows)
    assert windows[1].first.isoweekday() == 1
    assert windows[2].first.day == 1


@given(moments, zones, st.sampled_from(RankingPeriod))
def test_windows_are_contiguous_and_their_names_sort(moment: datetime, zone: ZoneInfo, period: RankingPeriod):
    window = window_on(period, moment.astimezone(zone).date(), zone)
    following = windows_at(window.ends_at, zone)[list(RankingPeriod).index(period)]

    assert following.starts_at == window.ends_at
    assert following.name > window.name
    assert window.kept_until >= following.ends_at, "the window before can be read as long as the present one lasts"


@given(moments, zones, st.timedeltas(-REACH - timedelta(days=3), timedelta(days=1)))
def test_retained_windows_and_listed_windows_are_equal(now: datetime, zone: ZoneInfo, ago: timedelta):
    listed = kept_windows(now, zone)
    windows = windows_at(now + ago, zone)

    assert all(window.kept_until > now for window in listed)
    assert [window for window in windows if window.kept_until > now and window not in listed] == []
    if ago < -REACH:
        assert not any(window.kept_until > now for window in windows), "beyond its reach nothing counts"
    for period in RankingPeriod:
        oldest = oldest_kept(period, now, zone)
        assert oldest == min((each for each in listed if each.period is period), key=lambda each: each.name)
    # So an event may be forgotten when its month is: its week does not outlive that.
    assert windows[1].kept_until <= windows[2].kept_until


def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="time zone"):
        windows_at(datetime.fromisoformat("2026-01-01"), UTC)
    for day in (date.min, date.max):
        with pytest.raises(NotFound):
            window_on(RankingPeriod.MONTHLY, day, ZoneInfo("Asia/Seoul"))
