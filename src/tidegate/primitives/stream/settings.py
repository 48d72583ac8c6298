"""How a stream treats its messages."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, Field

from tidegate.core.arguments import require_name

Span = Annotated[timedelta, Ge(timedelta(milliseconds=1)), Le(timedelta(days=31))]
GroupName = Annotated[str, AfterValidator(lambda name: require_name("group", name))]


class StreamSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The same for all processes that use one stream."""

    group: GroupName = "workers"
    """The consumer group. There is one per stream, since a message is deleted when it is acknowledged."""
    max_deliveries: int = Field(default=5, ge=1, le=10**9)
    """A message given back after this many deliveries becomes a dead letter."""
    idle_limit: Span = timedelta(minutes=5)
    """A message held longer than this without an acknowledgement goes to others, whatever became of its consumer.
    A deployment takes no less than a second."""
    blocking: bool | None = None
    """Whether reads wait on the server; unset: wherever the server allows it."""
    poll_interval: Span = timedelta(milliseconds=100)
    """The first pause after a read in vain, where reads do not wait on the server; it grows to a second."""
    remember_adds_for: Span = timedelta(minutes=1)
    """How long adding the same batch again adds nothing; longer than a client goes on trying."""
