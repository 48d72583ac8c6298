"""Limiters on one set of keys, as several processes would have them."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tidegate.core.clock import ManualClock
from tidegate.core.ids import new_id
from tidegate.primitives.limiter import Limit, Limiter, LimiterSettings, Priority, Rate
from tidegate.storage.valkey import Unit, Valkey

LOW_ONLY = frozenset({Priority.LOW})
HIGH_ONLY = frozenset({Priority.HIGH})
SECOND = timedelta(seconds=1)

NewLimiter = Callable[..., Limiter]


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


def rules(*given: Limit | Rate, **others: object) -> LimiterSettings:
    """Settings with these rules, and no quiet time at the start."""
    limits = tuple(rule for rule in given if isinstance(rule, Limit))
    rates = tuple(rule for rule in given if isinstance(rule, Rate))
    return LimiterSettings.model_validate({"limits": limits, "rates": rates, "quiet_start": timedelta(0), **others})


@pytest.fixture
def unit(valkey: Valkey) -> Unit:
    return valkey.unit(new_id())


@pytest.fixture
def new_limiter(valkey: Valkey, unit: Unit, clock: ManualClock) -> NewLimiter:
    def make(*given: Limit | Rate, **others: object) -> Limiter:
        # A stopwatch that follows the manual clock: on a busy machine no permit may end before its test uses it.
        return Limiter(valkey, unit, clock, rules(*given, **others), stopwatch=lambda: float(clock.pinned_ms))

    return make
