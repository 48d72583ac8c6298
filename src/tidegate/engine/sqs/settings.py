"""Which queues on AWS. Credentials are found by the SDK's own chain, and never stored here."""

from datetime import timedelta
from typing import Annotated

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator

_ADDRESS = r"^https?://[^\s/@]+(/\S*)?$"
Visibility = Annotated[timedelta, Ge(timedelta(seconds=1)), Le(timedelta(hours=12))]


class AwsSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """Which queues on AWS. Who we are is found as the AWS SDK always does: environment, files, role of the machine."""

    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]{1,40}$")
    """The region of the queues; else what the SDK finds."""
    endpoint_url: str | None = Field(default=None, pattern=_ADDRESS)
    """Where SQS answers, if not at its usual address: a VPC endpoint, or another server that speaks SQS."""
    trigger_queue_url: str | None = Field(default=None, pattern=_ADDRESS)
    """The queue whose messages begin runs of schedules: events of EventBridge, or `{"schedule": 7, "key": "…"}`."""
    task_queue_url: str | None = Field(default=None, pattern=_ADDRESS)
    """The queue by which jobs of the source `collect.source` that have their permit reach the workers, a standard one;
    else the stream in Valkey, which jobs of other sources always use."""
    visibility_timeout: Visibility = timedelta(seconds=10)
    """How long SQS hides a message from others, before it believes that whoever received it is dead. A trigger in hand
    is hidden anew as often as need be; a job's message is in hand only until the worker has taken the job. To be shown
    too soon does no harm; what SQS gave to a process that had just died waits for so long."""
    trigger_attempts: int = Field(default=10, ge=1, le=1000)
    """A trigger that failed in a way that we do not expect, and was received so many times, is given up. A redrive
    policy with a lower count moves it to the dead letters of its queue instead."""

    @field_validator("task_queue_url")
    @classmethod
    def _is_a_standard_queue(cls, value: str | None) -> str | None:
        if value is not None and value.endswith(".fifo"):
            raise ValueError("must be a standard queue: jobs have no order, and a FIFO queue would hold some up")
        return value
