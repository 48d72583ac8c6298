"""Settings of the link checker: the section `[link_checker]`, or variables such as `TIDEGATE_LINK_CHECKER__TIMEOUT`."""

from datetime import timedelta

from pydantic import BaseModel, Field


class LinkCheckerSettings(BaseModel, frozen=True, extra="forbid"):
    """How links are checked."""

    timeout: timedelta = Field(default=timedelta(seconds=10), gt=timedelta())
    """How long a link may take to answer."""
