"""Settings of timers: how many due ones are promoted at once."""

from pydantic import BaseModel, Field


class TimerSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of timers: how many due ones are promoted at once."""

    promoted_at_once: int = Field(default=500, ge=1, le=1000)
    """How many due timers one script promotes: enough to be quick, few enough not to hold up the server."""
