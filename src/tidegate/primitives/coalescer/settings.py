"""Settings of a coalescer: how long work is locked, and its version remembered."""

from datetime import timedelta
from typing import Annotated, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, model_validator

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]


class CoalescerSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of a coalescer: how long work is locked, and its version remembered."""

    high_lock: Span = timedelta(seconds=30)
    """How long HIGH work is locked; afterwards it may be requested again."""
    low_lock: Span = timedelta(seconds=60)
    """How long LOW work is locked."""
    keep_version: Span = timedelta(minutes=45)
    """How long the version of a subject is kept. An event that waited longer cannot be recognised as obsolete."""

    @model_validator(mode="after")
    def _version_outlives_its_lock(self) -> Self:
        if self.keep_version < max(self.high_lock, self.low_lock):
            raise ValueError("keep_version must be at least as long as the locks")
        return self
