"""Settings of the retention of old data."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

_Kept = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]


class RetentionSettings(BaseModel, frozen=True, extra="forbid"):
    """How long old data is kept.

    Data in use is never deleted, regardless of its age: active runs, active admissions, open campaigns.
    """

    every: Annotated[timedelta, Ge(timedelta(minutes=1)), Le(timedelta(days=7))] = timedelta(hours=1)
    """How often the leader deletes old data; it also does so when it becomes the leader."""
    runs: _Kept = timedelta(days=90)
    """How long a run is kept after its end, with its jobs and executions. It can be retried until then."""
    cursors: _Kept = timedelta(days=365)
    """How long the cursor of a list is kept that no stored run has requested. A list without a cursor is read from the
    beginning."""
    firings: _Kept = timedelta(days=30)
    """How long fired trigger keys and due times of schedules are kept. After that, the same key can fire again."""
    handled_events: _Kept = timedelta(days=30)
    """How long records of handled events are kept; longer while the event is pending or a dead letter."""
    dead_letters: _Kept = timedelta(days=90)
    """How long dead letters of events, crawled pages and job streams can be replayed. At most `runs`, because they need
    their runs. Dead letters of a campaign are kept as long as the campaign."""
    history: _Kept = timedelta(days=30)
    """How long the points of the dashboard's charts are kept: one for each series and five minutes."""
    identity_health: _Kept = timedelta(days=90)
    """How long the health of a crawl identity at a host is kept after the last refusal."""

    @model_validator(mode="after")
    def _can_be_replayed(self) -> Self:
        if self.dead_letters > self.runs:
            raise ValueError("dead_letters must not be longer than runs: a dead letter needs its run")
        return self
