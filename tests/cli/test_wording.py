"""Numbers, times and spans as people read them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tidegate.cli.wording import clock, counted, exact_span, listed, number, span

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((0, "0 s"), (-3, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"), (900, "15 min")),
        *((3_599, "60 min"), (3_600, "1 h 00 min"), (7_500, "2 h 05 min"), (86_400, "1 d 0 h"), (273_600, "3 d 4 h")),
    ],
)
def test_durations_are_formatted(seconds: float, told: str):
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.25, "0.25 s"), (1.5, "1.5 s"), (10, "10 s"), (0.0004, "0 s"), (90, "1 min 30 s")]
)
def test_a_configured_value_is_not_rounded_to_zero(seconds: float, told: str):
    assert exact_span(seconds) == told


@pytest.fixture
def in_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_greenwich")
def test_a_time_includes_its_date_unless_it_is_today():
    assert clock(NOON + timedelta(minutes=2, seconds=10), NOON) == "12:02:10"
    assert clock(NOON + timedelta(days=1), NOON) == "Mar 3 12:00"
    assert clock(NOON - timedelta(days=400), NOON) == "2025-01-26 12:00"


def test_counts_are_formatted():
    assert (number(1_234_567), number(0.44), number(0), number(12.6)) == ("1,234,567", "0.4", "0", "13")
    assert (counted(1, "call"), counted(0, "call"), counted(1_000, "call")) == ("1 call", "0 calls", "1,000 calls")
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcdef", most=2) == "a, b and 4 more"
