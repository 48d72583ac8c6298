"""Settings of the campaign system."""

import re
from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator, model_validator

from tidegate.core.backoff import Backoff

_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ENTRIES_PER_CONSUMER = 1000
Pause = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(minutes=4))]
"""Shorter than the five minutes for which a message may be held."""


class CampaignSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the campaign system. The settings of each campaign are in the database (`CampaignPlan`)."""

    enabled: bool = True
    """Whether the processes of this installation decide entries. Entries are accepted in any case."""
    batch_size: int = Field(default=10, ge=1, le=500)
    """Entries that a consumer takes at once."""
    max_len: int = Field(default=100_000, ge=1, le=100_000_000)
    """Undecided entries per campaign. Beyond that, attempts are answered BUSY; accepted entries are never dropped."""
    min_consumers: int = Field(default=1, ge=1, le=32)
    """Fewest consumers per process and campaign."""
    max_consumers: int = Field(default=32, ge=1, le=32)
    """Most consumers per process and campaign; in between, one for each thousand of the campaign's `total_count`."""
    poll_interval_ms: int = Field(default=100, ge=10, le=60_000)
    """First pause after an empty read where the server does not allow blocking reads; it grows."""
    blocking: bool | None = None
    """Whether reads block on the server; by default if the server allows it."""
    idle_timeout_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """A campaign without entries for this long has no consumers until the next entry."""
    max_deliveries: int = Field(default=5, ge=1, le=1000)
    """An entry becomes a dead letter after this many failed deliveries."""
    retry_first_pause: Pause = timedelta(seconds=2)
    """Pause after the first failure of an entry; four times as long after each further one."""
    retry_longest_pause: Pause = timedelta(minutes=2)
    """Longest pause. With the defaults, the five attempts of an entry take about 160 s."""
    kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=365)
    """How long a campaign is kept after its end, with its entries and dead letters. Points are kept."""
    kinds: tuple[str, ...] = ()
    """Custom kinds, each as `module:name` of a class without arguments. The module must be installed, or in a folder of
    PYTHONPATH."""

    @property
    def idle_timeout(self) -> timedelta:
        """`idle_timeout_seconds` as a `timedelta`."""
        return timedelta(seconds=self.idle_timeout_seconds)

    @property
    def retry_pauses(self) -> Backoff:
        """Pauses between two attempts of an entry."""
        return Backoff(first=self.retry_first_pause, most=self.retry_longest_pause, factor=4.0, jitter=0.1)

    def consumers_for(self, total_count: int) -> int:
        """Return the number of consumers per process for a campaign of this size."""
        wanted = -(-total_count // _ENTRIES_PER_CONSUMER)
        return max(self.min_consumers, min(self.max_consumers, wanted))

    @field_validator("kinds")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place in value:
            if not _PLACE.fullmatch(place):
                raise ValueError(f"{place[:80]!r} must be written as module:name, such as shop.campaigns:Lottery")
        return value

    @model_validator(mode="after")
    def _is_a_range(self) -> "CampaignSettings":
        if self.min_consumers > self.max_consumers:
            raise ValueError("min_consumers must not be more than max_consumers")
        return self
