"""How a stream treats its messages."""

from datetime import timedelta

from pydantic import BaseModel, Field


class StreamSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """The same for all processes that use one stream."""

    group: str = Field(default="workers", min_length=1)
    """The consumer group. There is one per stream, since a message is deleted when it is acknowledged."""
    max_deliveries: int = Field(default=5, ge=1)
    """A message given back after this many deliveries becomes a dead letter."""
    idle_limit: timedelta = Field(default=timedelta(minutes=5), gt=timedelta(0))
    """A message held longer than this without an acknowledgement goes to others, whatever became of its consumer."""
    blocking: bool | None = None
    """Whether reads wait on the server; unset: wherever the server allows it."""
    remember_adds_for: timedelta = Field(default=timedelta(minutes=1), gt=timedelta(0))
    """How long adding the same batch again adds nothing; longer than a client goes on trying."""
