"""How soon a silent process counts as dead."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class MembershipSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How soon a silent process counts as dead. The same for all processes of a deployment."""

    lease: Span = timedelta(seconds=10)
    """How long a process may be silent."""
    renew_every: Span = timedelta(seconds=7)
    """How often it gives a sign of life; what is left of the lease is the time to try again. A deployment takes no less
    than 100 ms."""

    @property
    def proof(self) -> timedelta:
        """For how long the server must have accepted writes before a lease counts as ended: half of the time in which a
        renewal can be tried again."""
        return (self.lease - self.renew_every) / 2

    @property
    def gap(self) -> timedelta:
        """How far apart two writes may be that prove this; no less than a second, or a busy machine proves nothing."""
        return max(self.proof, timedelta(seconds=1))

    @property
    def retry(self) -> timedelta:
        """How soon a renewal that failed is tried again, at the latest: several times within `proof`."""
        return self.proof / 3

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_every >= self.lease:
            raise ValueError("renew_every must be shorter than lease")
        return self
