"""The rules of a limiter, as data."""

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Gt, Le
from pydantic import AfterValidator, BaseModel, Field, model_validator

from tidegate.core.arguments import require_name
from tidegate.core.priority import Priority

ALL = frozenset(Priority)

RuleName = Annotated[str, Field(max_length=64), AfterValidator(lambda name: require_name("name", name))]
Span = Annotated[timedelta, Gt(timedelta(0)), Le(timedelta(days=31))]
Brief = Annotated[timedelta, Gt(timedelta(0)), Le(timedelta(seconds=10))]


class Limit(BaseModel, frozen=True, extra="forbid"):
    """At most `permits` units in ANY window of this length, as the upstream sees it.

    Example:
        Limit(name="second", permits=500, window=timedelta(seconds=1))
    """

    name: RuleName
    """Name of the rule in settings and status."""
    permits: int = Field(ge=1, le=10**12)
    """Units per window."""
    window: Span
    """Length of the window."""
    priorities: frozenset[Priority] = Field(default=ALL, min_length=1)
    """Priorities of the calls that are counted and limited."""


class Rate(BaseModel, frozen=True, extra="forbid"):
    """A token bucket: `per_second` units on average, and at most `burst` more than that at any time.

    Example:
        Rate(name="sustained", per_second=450, burst=50)
    """

    name: RuleName
    """Name of the rule in settings and status."""
    per_second: float = Field(gt=0, le=10**9, allow_inf_nan=False)
    """Units per second on average."""
    burst: int = Field(ge=1, le=10**9)
    """Units that accumulate while there are no calls."""
    priorities: frozenset[Priority] = Field(default=ALL, min_length=1)
    """Priorities of the calls that are counted and limited."""


def _default_limits() -> tuple[Limit, ...]:
    second = timedelta(seconds=1)
    return (
        Limit(name="second", permits=500, window=second),
        Limit(name="low", permits=350, window=second, priorities=frozenset({Priority.LOW})),
        Limit(name="day", permits=20_000_000, window=timedelta(days=1)),
    )


class LimiterSettings(BaseModel, frozen=True, extra="forbid"):
    """Limits and rates, which all apply at once, and how permits are granted.

    Example:
        second = Limit(name="second", permits=500, window=timedelta(seconds=1))
        day = Limit(name="day", permits=1_000_000, window=timedelta(days=1))
        limiter = Limiter(valkey, valkey.unit("weather-api"), settings=LimiterSettings(limits=(second, day), rates=()))
    """

    limits: tuple[Limit, ...] = Field(default_factory=_default_limits, max_length=16)
    """Limits that hold in any window."""
    rates: tuple[Rate, ...] = Field(default=(Rate(name="sustained", per_second=450, burst=50),), max_length=16)
    """Average rates; they spread the calls within the windows."""
    use_by: Brief = timedelta(milliseconds=50)
    """How long a permit is valid, counted from its request. Every window is longer by this, which costs throughput."""
    guard: Brief = timedelta(milliseconds=20)
    """How much longer one call may travel to the upstream than another. Also added to every window."""
    pace: Brief = timedelta(milliseconds=60)
    """Minimum time between two requests of one process to the server; callers that arrive meanwhile are combined."""
    low_floor: float = Field(default=0.05, ge=0, le=0.5)
    """Share of LOW's own rate that HIGH never uses."""
    quiet_start: timedelta = Field(default=timedelta(milliseconds=1100), ge=timedelta(0), le=timedelta(hours=1))
    """How long a server without records (new, or after a loss of data) grants nothing. Windows up to this length,
    including `use_by` and `guard`, hold even then."""
    most_waiting: int = Field(default=100_000, ge=1)
    """How many callers may wait in one process; more are refused at once."""

    @property
    def rules(self) -> tuple[Limit | Rate, ...]:
        """Limits first, then rates: the order in which the scripts know them."""
        return (*self.limits, *self.rates)

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(names) != len(set(names)):
            raise ValueError(f"two rules have one name: {sorted(names)}")
        return self

    @model_validator(mode="after")
    def _everyone_is_bound(self) -> Self:
        for priority in Priority:
            if not any(priority in rule.priorities for rule in self.rules):
                raise ValueError(f"no rule binds {priority}: a limiter without a limit is a mistake")
        return self

    @model_validator(mode="after")
    def _bursts_outlast_the_pace(self) -> Self:
        """A bucket that overflows between two requests loses permits."""
        for rate in self.rates:
            least = rate.per_second * self.pace.total_seconds() * 1.5
            if rate.burst < least:
                raise ValueError(
                    f"rate {rate.name!r}: a burst of {rate.burst} overflows within the pace; use {math.ceil(least)}"
                )
        return self


def binding(rules: Iterable[Limit | Rate], priority: Priority) -> list[Limit | Rate]:
    """The rules that count the calls of this priority."""
    return [rule for rule in rules if priority in rule.priorities]
