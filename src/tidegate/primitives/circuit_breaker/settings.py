"""Settings of a circuit breaker: when it opens, and how it closes again."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Gt
from pydantic import BaseModel, Field


class CircuitBreakerSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of a circuit breaker: when it opens, and how it closes again."""

    window: int = Field(default=10, ge=1)
    """Number of last calls that are evaluated; the breaker stays closed until there were that many."""
    failure_rate: float = Field(default=0.5, gt=0, le=1)
    """Share of failures among them from which the breaker opens."""
    open_for: Annotated[timedelta, Gt(timedelta(0))] = timedelta(seconds=30)
    """How long calls are refused before trial calls are made."""
    trials: int = Field(default=5, ge=1)
    """Number of trial calls; the same share of failures among them opens the breaker again."""
