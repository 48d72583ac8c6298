"""How long work is locked, and its version remembered."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class CoalescerSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How long work is locked, and its version remembered."""

    high_lock: Span = timedelta(seconds=30)
    """How long urgent work may take before somebody else may begin it anew."""
    low_lock: Span = timedelta(seconds=60)
    """The same for work that nobody waits for."""
    keep_version: Span = timedelta(minutes=45)
    """How long a subject's version is remembered; an event that waited for longer is no longer known to be obsolete."""

    @model_validator(mode="after")
    def _version_outlives_its_lock(self) -> Self:
        if self.keep_version < max(self.high_lock, self.low_lock):
            raise ValueError("keep_version must be at least as long as the locks")
        return self
