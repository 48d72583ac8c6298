"""How soon a silent process counts as dead."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class PresenceSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How soon a silent process counts as dead. The same for all processes of a deployment."""

    lease: Span = timedelta(seconds=10)
    """How long a process may be silent."""
    renew_every: Span = timedelta(seconds=7)
    """How often it gives a sign of life; what is left of the lease is the time to try again. A deployment takes no less
    than 100 ms."""

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_every >= self.lease:
            raise ValueError("renew_every must be shorter than lease")
        return self
