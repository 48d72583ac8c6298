"""When calls can have been made, given what credentials may still do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import InvalidArgument
from tidegate.engine.commands.permits import Forecast, Supply, forecast


def supply(now: int = 100, per_window: int = 100, opens_in_s: float = 60, per_minute: int = 6_000) -> Supply:
    """By default so many may come in a minute that ten in a second are what holds them up."""
    return Supply(
        now=now, per_window=per_window, opens_in_s=opens_in_s, window_s=3_600, per_minute=per_minute, concurrency=5
    )


def test_work_within_the_remaining_permits_takes_the_duration_of_its_calls():
    assert forecast(50, [supply()]) == Forecast(seconds=5)
    assert forecast(50, [supply()], calls_per_s=2) == Forecast(seconds=25)
    assert forecast(0, [supply(now=0)]) == Forecast(seconds=0)


def test_work_beyond_the_remaining_permits_waits_for_the_next_windows():
    assert forecast(150, [supply()]) == Forecast(seconds=65, windows=1, waits=1, first_wait_s=60)
    assert forecast(250, [supply()]) == Forecast(seconds=3_665, windows=2, waits=2, first_wait_s=60)


def test_a_window_that_opens_during_work_causes_no_wait():
    assert forecast(200, [supply(opens_in_s=8)]) == Forecast(seconds=20, windows=1)


def test_calls_above_the_minute_limit_are_paced_by_it():
    assert forecast(100, [supply(per_minute=60)]) == Forecast(seconds=60 / 10 + 40)
    rested = forecast(200, [supply(per_minute=60, opens_in_s=1_000)])
    assert rested == Forecast(seconds=1_000 + 60 / 10 + 40, windows=1, waits=1, first_wait_s=1_000)


def test_credentials_share_the_work():
    one, other = supply(now=0, opens_in_s=10), supply(now=0, opens_in_s=30)
    assert forecast(150, [one, other]) == Forecast(seconds=32.5, windows=2, waits=2, first_wait_s=10)


def test_without_a_usable_credential_there_is_no_forecast():
    assert forecast(10, []) is None
    assert forecast(10, [supply(per_window=0)]) is None
    with pytest.raises(InvalidArgument):
        forecast(-1, [supply()])


SUPPLIES = st.builds(
    supply,
    now=st.integers(0, 300),
    per_window=st.integers(1, 300),
    opens_in_s=st.floats(0, 4_000),
    per_minute=st.integers(1, 1_000),
)


@given(st.integers(0, 5_000), st.lists(SUPPLIES, min_size=1, max_size=4))
def test_more_calls_never_end_earlier_and_every_limit_is_respected(calls: int, supplies: list[Supply]):
    end, later = forecast(calls, supplies), forecast(calls + 1, supplies)
    assert end is not None
    assert later is not None
    assert later.seconds >= end.seconds
    per_minute = sum(one.per_minute for one in supplies)
    assert calls <= per_minute + (end.seconds + 1e-6) * per_minute / 60
    assert calls <= (end.seconds + 1e-6) * 10 * len(supplies)
    assert calls <= sum(given_until(end.seconds + 1e-6, one) for one in supplies)


def given_until(seconds: float, one: Supply) -> int:
    """All that a credential can have given by then."""
    windows = 0 if seconds < one.opens_in_s else 1 + int((seconds - one.opens_in_s) / one.window_s)
    return one.now + windows * one.per_window
