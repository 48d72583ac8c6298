"""Settings of a stream: consumer group, delivery limit, idle limit and polling."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, Field

from tidegate.core.arguments import require_name

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]
GroupName = Annotated[str, AfterValidator(lambda name: require_name("group", name))]


class StreamSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Settings of a stream; the same for all its processes."""

    group: GroupName = "workers"
    """The consumer group. There is one per stream, because a message is deleted when it is acknowledged."""
    max_deliveries: int = Field(default=5, ge=1, le=10**9)
    """A message that was delivered this often without success becomes a dead letter."""
    idle_limit: Span = timedelta(minutes=5)
    """A message that is held longer without an acknowledgement is given to another consumer. At least a second in a
    deployment."""
    blocking: bool | None = None
    """Whether reads block on the server; unset: if the server allows it."""
    poll_interval: Span = timedelta(milliseconds=100)
    """First pause after an empty read if reads do not block; it grows to a second."""
    remember_adds_for: Span = timedelta(minutes=1)
    """How long a repeated batch is recognised; longer than a client retries."""
