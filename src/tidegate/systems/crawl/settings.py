"""Settings of crawls: politeness, identities and retries."""

import re
from datetime import timedelta
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, Field, field_validator

from tidegate import __version__
from tidegate.core.backoff import Backoff
from tidegate.primitives.settings import CredentialLimits

_NONE = timedelta(0)
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LINE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
Span = Annotated[timedelta, Gt(_NONE), Le(timedelta(days=31))]
Gap = Annotated[timedelta, Ge(_NONE), Le(timedelta(days=1))]
Brief = Annotated[timedelta, Gt(_NONE), Le(timedelta(hours=1))]


class CrawlSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of crawls. robots.txt is obeyed, unless a crawl itself is started with `--ignore-robots`."""

    delay: Gap = timedelta(seconds=1)
    """Minimum time between two calls to one host, by all processes together; a longer Crawl-delay takes precedence."""
    robots_max_age: Span = timedelta(days=1)
    """How long a robots.txt is valid after it was read."""
    robots_first_pause: Brief = timedelta(seconds=5)
    """How long a host is not called after its robots.txt could not be read; it doubles each time."""
    robots_longest_pause: Span = timedelta(minutes=30)
    """The longest of these pauses."""
    user_agent: str | None = Field(default=None, max_length=500)
    """The default User-Agent if no identity is stored; otherwise `tidegate` with its version and `contact`."""
    contact: str | None = Field(default=None, max_length=200)
    """How site owners reach you: a URL or an e-mail address, shown in the default User-Agent."""
    retry_after_binds: Literal["host", "identity"] = "host"
    """What a Retry-After applies to: all calls to the host, or only the identity that received it."""
    longest_retry_after: Span = timedelta(days=1)
    """Longest accepted Retry-After; a longer one counts as this."""
    concurrency: int = Field(default=1, ge=1, le=1000)
    """Concurrent calls of one identity, to all hosts together."""
    per_minute: int = Field(default=600, ge=1, le=10**6)
    """Calls per minute of one identity, to all hosts together."""
    first_rest: Brief = timedelta(seconds=30)
    """How long an identity does not call a host that refused it without naming a time; it doubles if a rest soon
    follows another."""
    sites: tuple[str, ...] = ()
    """Additional sites, each as `module:name`: a `Site`, or a class or function that builds one without arguments. The
    module is installed, or in a folder of PYTHONPATH."""
    raw_attempts: int = Field(default=5, ge=1, le=100)
    """Attempts to apply a stored answer before it becomes a dead letter."""
    raw_first_pause: Brief = timedelta(seconds=2)
    """The longest pause after the first failed attempt; it doubles with each."""
    raw_longest_pause: Span = timedelta(minutes=10)
    """The longest of these pauses."""
    raws_kept: Span = timedelta(days=7)
    """How long an answer is kept after it was applied to a product; for dead letters, see
    `retention.dead_letters`."""

    @property
    def honest_user_agent(self) -> str:
        """The User-Agent that is used if no identity is stored."""
        about = "crawler" if self.contact is None else f"crawler; +{self.contact}"
        return self.user_agent or f"tidegate/{__version__} ({about})"

    @property
    def identity_limits(self) -> CredentialLimits:
        """Limits of an identity in the gate; hosts do not report how many calls are left."""
        return CredentialLimits(
            concurrency=self.concurrency,
            per_minute=self.per_minute,
            one_at_a_time=frozenset(),
            floor=0,
            metered=False,
        )

    @property
    def robots_pauses(self) -> Backoff:
        """Pauses between attempts to read a robots.txt."""
        return Backoff(first=self.robots_first_pause, most=self.robots_longest_pause, jitter=0.2)

    @property
    def raw_pauses(self) -> Backoff:
        """Pauses between attempts to apply a stored answer."""
        return Backoff(first=self.raw_first_pause, most=self.raw_longest_pause)

    @field_validator("user_agent", "contact")
    @classmethod
    def _are_lines(cls, value: str | None) -> str | None:
        if value is not None and not _LINE.fullmatch(value):
            raise ValueError("must be printable ASCII, and neither begin nor end with a space")
        return value

    @field_validator("sites")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for place in value:
            if not _PLACE.fullmatch(place):
                raise ValueError(f"{place[:80]!r} must be written as module:name, such as shop.sites:Bazaar")
        return value
