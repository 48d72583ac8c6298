"""The default source, how often a job is tried, and how long it waits in between."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, model_validator

from tidegate.core.backoff import Backoff

_Pause = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=7))]


class CollectSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The default source, how often a job is tried, and how long it waits in between."""

    source: str = Field(default="github", pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    """The source that commands and requests mean when they name none. Its jobs reach the workers by
    `aws.task_queue_url` when that is set."""
    max_attempts: int = Field(default=5, ge=1, le=1000)
    """How often a job is tried after failed calls and dead workers. A try that the upstream postponed is not counted.
    It applies to runs that begin from now on."""
    first_pause: _Pause = timedelta(seconds=2)
    """How long a job waits at most after its first failure; after each further one it is twice as long."""
    longest_pause: _Pause = timedelta(minutes=10)
    """The longest that a job ever waits after a failure."""
    completion_attempts: int = Field(default=8, ge=1, le=1000)
    """How often is tried what has to be computed at the end of a run, before it becomes a dead letter. The pauses grow
    from a minute to an hour."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.longest_pause < self.first_pause:
            raise ValueError("longest_pause must not be shorter than first_pause")
        return self

    @property
    def pauses(self) -> Backoff:
        """How long a job waits after each failure."""
        return Backoff(first=self.first_pause, most=self.longest_pause)
