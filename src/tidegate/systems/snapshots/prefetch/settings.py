"""What an operator may choose about the calls that nobody waits for."""

from datetime import timedelta
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator, model_validator

Span = Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(days=366))]
Rate = Annotated[float, Ge(0.01), Le(100_000)]
HourOfDay = Annotated[int, Ge(0), Le(24)]
Share = Annotated[float, Ge(0.01), Le(1)]


_ROUNDING = 1e-9


class PrefetchSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True):
    """Which subjects are asked for by the clock, and how often."""

    enabled: bool = True
    """Whether subjects are asked for by the clock at all."""
    policy: Literal["tiers", "learned"] = "tiers"
    """By when a subject was last read (`tiers`), or by how often it was found changed (`learned`)."""
    daily_budget: int = Field(default=18_000_000, ge=0, le=10**12)
    """The most calls in a day, which begins at midnight in the time zone; spread over the day as the rates are."""
    timezone: str = "UTC"
    """By whose clocks, like Asia/Seoul."""
    rate: Rate = 250.0
    """The most calls in a second."""
    evening_rate: Rate = 150.0
    """The same in the evening, when readers need the upstream's limit themselves."""
    evening_begins: HourOfDay = 19
    """The hour at which the evening begins."""
    evening_ends: HourOfDay = 23
    """The hour at which it is over."""
    hot_every: Span = timedelta(hours=1)
    """How often a HOT subject is asked for."""
    warm_every: Span = timedelta(hours=6)
    """How often a WARM one is."""
    cold_every: Span = timedelta(hours=24)
    """How often all others are."""
    hot_within: Span = timedelta(days=1)
    """HOT: read within this time."""
    warm_within: Span = timedelta(days=7)
    """WARM: read within this time."""
    hot_share: Share = 0.5
    """The share of the calls that HOT subjects get at least, if as many are due. What a tier does not need goes to HOT,
    then WARM, then COLD."""
    warm_share: Share = 0.3
    """The same for WARM ones."""
    cold_share: Share = 0.2
    """The same for all others, so that they do not wait forever."""
    shortest: Span = timedelta(minutes=10)
    """`learned`: no subject is asked for more often."""
    longest: Span = timedelta(days=1)
    """`learned`: none is asked for less often, so that a change of its habits is noticed."""
    hours_kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=400)
    """How long the number of calls in each hour is kept."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows; they are named like Europe/Berlin") from None
        return value

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        if self.evening_begins > self.evening_ends:
            raise ValueError("evening_begins must not be later than evening_ends")
        if not self.hot_every <= self.warm_every <= self.cold_every:
            raise ValueError("hot_every, warm_every and cold_every must not decrease")
        if self.hot_within > self.warm_within:
            raise ValueError("hot_within must not be longer than warm_within")
        if self.hot_share + self.warm_share + self.cold_share > 1 + _ROUNDING:
            raise ValueError("hot_share, warm_share and cold_share must not be more than 1 together")
        if self.shortest > self.longest:
            raise ValueError("shortest must not be longer than longest")
        return self
