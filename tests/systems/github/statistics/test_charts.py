"""Charts in characters."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.cli.tables import BLOCKS, PLAIN, Glyphs, bar, heat, sparkline


def test_a_sparkline_is_proportional_to_its_values():
    assert sparkline([0, 1, 4, 8]) == "·▁▄█"
    assert sparkline([0, 0]) == "··"
    assert sparkline([]) == ""
    assert sparkline([1, 2], most=8) == "▁▂"
    assert sparkline([0, 1, 1000]) == "·▁█"
    assert sparkline([0, 1, 8], PLAIN) == ".,#"


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_a_sparkline_is_monotonic(values: list[int]):
    heights = [BLOCKS.heights.index(each) for each in sparkline(values)]

    assert len(heights) == len(values)
    assert sorted(heights) == [height for _, height in sorted(zip(values, heights, strict=True))]
    assert [height > 0 for height in heights] == [value > 0 for value in values]


def test_a_bar_is_proportional_to_its_value_and_the_smallest_is_visible():
    assert [len(bar(value, 50, 10)) for value in (0, 1, 5, 25, 50)] == [0, 1, 1, 5, 10]
    assert bar(2, 2, 3, PLAIN) == "###"


@pytest.mark.parametrize("weekday", range(7))
def test_every_day_of_the_weeks_up_to_today_has_a_cell(weekday: int):
    today = date(2026, 3, 2) + timedelta(days=weekday)
    lines = heat({today: 4, date(2026, 2, 24): 1}, today, 3)

    assert len(lines) == 8
    cells = [line[4:] for line in lines[1:]]
    assert [len(row) for row in cells] == [3 if n <= weekday else 2 for n in range(7)]
    assert cells[weekday][2] == "█"
    assert cells[1][1] == "░"
    assert "".join(cells).count("·") == sum(map(len, cells)) - 2


def test_months_are_above_the_first_week_that_starts_in_them_if_there_is_space():
    (months, *_) = heat({}, date(2026, 11, 15), 53)

    assert months == "       Dec  Jan Feb Mar  Apr May Jun  Jul Aug  Sep Oct"
    (months, *_) = heat({}, date(2026, 3, 31), 9)
    assert months == "    Feb Mar"


@pytest.mark.parametrize(
    ("encoding", "glyphs"), [("utf-8", BLOCKS), ("UTF8", BLOCKS), ("ascii", PLAIN), ("cp1252", PLAIN)]
)
def test_a_terminal_without_unicode_gets_ascii_characters(encoding: str, glyphs: Glyphs):
    assert Glyphs.of(encoding) == glyphs
    "".join((PLAIN.heights, PLAIN.shades, PLAIN.bar)).encode("ascii")
