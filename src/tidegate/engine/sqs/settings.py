"""Settings of the SQS queues. They contain no credentials: the AWS SDK finds those itself."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator

_ADDRESS = r"^https?://[^\s/@]+(/\S*)?$"
Visibility = Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(hours=12))]


class AwsSettings(BaseModel, frozen=True, extra="forbid"):
    """The SQS queues. The AWS SDK finds the credentials: in the environment, its files, or the role of the machine."""

    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]{1,40}$")
    """The region of the queues. Default: that of the SDK."""
    endpoint_url: str | None = Field(default=None, pattern=_ADDRESS)
    """The URL of SQS if it is not the usual one: a VPC endpoint, or another server with the same API."""
    trigger_queue_url: str | None = Field(default=None, pattern=_ADDRESS)
    """The queue with messages that start runs of schedules: events of EventBridge, or `{"schedule": 7, "key": "…"}`."""
    task_queue_url: str | None = Field(default=None, pattern=_ADDRESS)
    """The standard queue through which dispatched jobs of the source `collect.source` reach the workers. Default: the
    stream in Valkey, which jobs of other sources always use."""
    visibility_timeout: Visibility = timedelta(seconds=10)
    """How long SQS hides a received message from other receivers. A trigger that is being processed is hidden again as
    often as necessary; the message of a job is deleted as soon as a worker has taken the job. A short time does no
    harm; with a long time, messages of a dead process are delivered later."""
    trigger_attempts: int = Field(default=10, ge=1, le=1000)
    """Number of receives after which a trigger with an unexpected error is discarded. A redrive policy with a lower
    count moves it to the dead-letter queue instead."""

    @field_validator("task_queue_url")
    @classmethod
    def _is_a_standard_queue(cls, value: str | None) -> str | None:
        if value is not None and value.endswith(".fifo"):
            raise ValueError("must be a standard queue: jobs have no order, and a FIFO queue would delay some of them")
        return value
