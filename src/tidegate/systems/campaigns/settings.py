"""How campaigns are worked on."""

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


class CampaignSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How campaigns are worked on; what each is like stands in the database."""

    enabled: bool = True
    """Whether the processes of this installation work on entries. The door is open either way."""
    batch_size: int = Field(default=10, ge=1, le=500)
    """How many entries a consumer takes at once."""
    max_len: int = Field(default=100_000, ge=1, le=100_000_000)
    """How many entries of one campaign may be in line; the door answers BUSY beyond that, and never drops one."""
    min_consumers: int = Field(default=1, ge=1, le=32)
    """How many consumers a process has at least for a campaign that it works on."""
    max_consumers: int = Field(default=32, ge=1, le=32)
    """And how many at most; in between it is one for each thousand of the campaign's `total_count`."""
    poll_interval_ms: int = Field(default=100, ge=10, le=60_000)
    """The first pause after a read that found nothing, where the server does not allow reads that wait; it grows."""
    blocking: bool | None = None
    """Whether reads wait at the server; by default where it allows that."""
    idle_timeout_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """A campaign without entries for so long has no consumers until the next one comes."""
    max_deliveries: int = Field(default=5, ge=1, le=1000)
    """An entry that failed so often becomes a dead letter."""
    retry_first_pause: Pause = timedelta(seconds=2)
    """How long an entry rests after its first failure; four times as long after each further one."""
    retry_longest_pause: Pause = timedelta(minutes=2)
    """How long it rests at most. With the defaults, the five tries of an entry take about 160 s."""
    kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=365)
    """For how long a campaign is kept after its end, with its entries and dead letters. Points stay."""
    kinds: tuple[str, ...] = ()
    """Kinds of your own, each as `module:name`: a class that is made without arguments. The module is installed, or
    lies in a folder of PYTHONPATH."""

    @property
    def idle_timeout(self) -> timedelta:
        """`idle_timeout_seconds` as a span."""
        return timedelta(seconds=self.idle_timeout_seconds)

    @property
    def retry_pauses(self) -> Backoff:
        """The pauses between two tries of an entry."""
        return Backoff(first=self.retry_first_pause, most=self.retry_longest_pause, factor=4.0, jitter=0.1)

    def consumers_for(self, total_count: int) -> int:
        """How many consumers one process has for a campaign of this size."""
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
