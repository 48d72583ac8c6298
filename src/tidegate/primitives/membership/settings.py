"""When a process that does not renew its lease counts as dead."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class MembershipSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """When a process that does not renew its lease counts as dead. The same for all processes of a deployment."""

    lease: Span = timedelta(seconds=10)
    """Length of a lease."""
    renew_every: Span = timedelta(seconds=7)
    """Interval of renewals; the rest of the lease is left for retries. At least 100 ms in a deployment."""

    @property
    def proof(self) -> timedelta:
        """How long the server must have accepted writes before a lease counts as ended: half of the time that is left
        for retries of a renewal."""
        return (self.lease - self.renew_every) / 2

    @property
    def gap(self) -> timedelta:
        """Maximum time between two writes that prove it; at least a second, for busy machines."""
        return max(self.proof, timedelta(seconds=1))

    @property
    def retry(self) -> timedelta:
        """Longest pause before a failed renewal is retried: several retries fit into `proof`."""
        return self.proof / 3

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_every >= self.lease:
            raise ValueError("renew_every must be shorter than lease")
        return self
