"""What an operator may choose about the history of snapshots."""

from datetime import time, timedelta
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from annotated_types import Ge, Le
from pydantic import BaseModel, Field, field_validator, model_validator

Span = Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))]
_DAY = timedelta(days=1)
SCHEMES = ("file", "s3", "gs", "az")


class ArchiveSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True):
    """What is remembered of snapshots, and where the old of it goes."""

    keep_history: bool = False
    """Whether it is remembered what a snapshot was before it changed. Each change then takes about as much room as a
    snapshot, in the database for as long as `after` says, and then in the archive until `delete_after`: for 18 million
    subjects of 17 KB that change once a day, some 70 GB a day."""
    enabled: bool = True
    """Whether old history is moved out of the database every night. Needs the extra `archive`."""
    url: str | None = None
    """Where to: `s3://bucket/prefix` or `file:///a/folder`; unset: the folder `archive` in the data folder. Who may
    write there is told by the environment, as everywhere (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …)."""
    after: Span = timedelta(days=30)
    """How old history is when it is moved."""
    cold_after: Span = timedelta(days=180)
    """How old history is when its files become cold: they get `cold_class` on S3, and move to `cold_url` from a
    folder."""
    cold_class: Literal["GLACIER_IR", "GLACIER", "DEEP_ARCHIVE", "none"] = "GLACIER_IR"
    """The storage class of cold files on S3. Files in `GLACIER` and `DEEP_ARCHIVE` have to be restored before `history`
    can read them. `none`: files never become cold, in a folder neither."""
    cold_url: str | None = None
    """The folder for cold files of an archive in a folder: `file:///a/folder`; unset: beside it, with `-cold` in its
    name."""
    delete_after: Span | None = None
    """How old history is when it is deleted for good; unset: never."""
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

    @field_validator("url", "cold_url")
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

    @property
    def cold_age(self) -> timedelta | None:
        """How old history is when its files become cold: a day after they were written, or later. None: never."""
        return None if self.cold_class == "none" else max(self.cold_after, self.after + _DAY)

    @model_validator(mode="after")
    def _ages_in_order(self) -> Self:
        if self.delete_after is not None and self.delete_after < (self.cold_age or self.after) + _DAY:
            raise ValueError("delete_after must be at least a day longer than after and cold_after")
        if self.cold_url is not None and not self.cold_url.startswith("file:"):
            raise ValueError("cold_url must be a folder: file:///a/folder")
        return self
