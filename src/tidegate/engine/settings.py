"""Settings of the collection of data (`collect` in the configuration)."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, model_validator

from tidegate.core.backoff import Backoff

_Pause = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=7))]


class CollectSettings(BaseModel, frozen=True, extra="forbid"):
    """The default source, the attempts of a job, and the pauses between them."""

    source: str = Field(default="github", pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    """The source of commands and requests that do not name one. Its jobs reach the workers through
    `aws.task_queue_url` if that is set."""
    max_attempts: int = Field(default=5, ge=1, le=1000)
    """Maximum number of attempts of a job. Failed calls and dead workers count; requests that the upstream postponed do
    not. A change applies to new runs."""
    first_pause: _Pause = timedelta(seconds=2)
    """Maximum pause after the first failure of a job; it doubles with each further failure."""
    longest_pause: _Pause = timedelta(minutes=10)
    """Maximum pause after a failure of a job."""
    completion_attempts: int = Field(default=8, ge=1, le=1000)
    """Maximum number of attempts of the computations at the end of a run, before they become a dead letter. The pauses
    grow from a minute to an hour."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.longest_pause < self.first_pause:
            raise ValueError("longest_pause must not be shorter than first_pause")
        return self

    @property
    def pauses(self) -> Backoff:
        """The pauses of a job after each failure."""
        return Backoff(first=self.first_pause, most=self.longest_pause)
