"""How long things are kept that would grow for ever otherwise."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

_Kept = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]


class RetentionSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How long things are kept that would grow for ever otherwise.

    What is in use is never deleted, however old it is: active runs, admissions that are not over, open campaigns.
    """

    every: Annotated[timedelta, Ge(timedelta(minutes=1)), Le(timedelta(days=7))] = timedelta(hours=1)
    """How often the leader deletes what is too old; also when a leader begins."""
    runs: _Kept = timedelta(days=90)
    """For how long a run is kept after its end, with its jobs and their executions. It can be retried as long."""
    cursors: _Kept = timedelta(days=365)
    """For how long the cursor of a list is kept that no run asked for as long as runs are kept. A list without a cursor
    is read from the beginning."""
    firings: _Kept = timedelta(days=30)
    """For how long it is known which trigger keys and due times of a schedule were fired. After that a key can be fired
    again."""
    handled_events: _Kept = timedelta(days=30)
    """For how long it is noted that an event was handled; longer while the event is pending or a dead letter."""
    dead_letters: _Kept = timedelta(days=90)
    """For how long dead letters of events, of pages that were crawled, and of the stream of jobs can be replayed. Not
    longer than `runs`, which they need. Those of a campaign stay as long as the campaign."""
    identity_health: _Kept = timedelta(days=90)
    """For how long it is known that a host refused an identity of the crawl, after it last did."""

    @model_validator(mode="after")
    def _can_be_replayed(self) -> Self:
        if self.dead_letters > self.runs:
            raise ValueError("dead_letters must not be longer than runs: a dead letter needs its run")
        return self
