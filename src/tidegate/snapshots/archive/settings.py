"""What an operator may choose about the history of snapshots."""

from datetime import time, timedelta
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator

Span = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]
SCHEMES = ("file", "s3", "gs", "az")


class ArchiveSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True):
    """What is remembered of snapshots, and where the old of it goes."""

    keep_history: bool = False
    """Whether it is remembered what a snapshot was before it changed. Each change then takes about as much room as a
    snapshot, in the database for as long as `after` says, and in the archive for ever: for 18 million subjects of 17
    KB that change once a day, some 70 GB a day."""
    enabled: bool = True
    """Whether old history is moved out of the database every night. Needs the extra `archive`."""
    url: str | None = None
    """Where to: `s3://bucket/prefix` or `file:///a/folder`; unset: the folder `archive` in the data folder. Who may
    write there is told by the environment, as everywhere (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …)."""
    after: Span = timedelta(days=30)
    """How old history is when it is moved."""
    at: str = Field(default="03:30", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    """At what time of day."""
    timezone: str = "UTC"
    """By whose clocks, like Asia/Seoul."""

    @property
    def time_of_day(self) -> time:
        """When it begins."""
        return time.fromisoformat(self.at)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone that this machine knows; they are named like Europe/Berlin") from None
        return value

    @field_validator("url")
    @classmethod
    def _is_a_place_without_secrets(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
        except ValueError:
            raise ValueError("is no URL") from None
        if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
            raise ValueError("must be like s3://bucket/prefix or file:///a/folder")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("must name a place and nothing else; credentials belong into the environment")
        return value
