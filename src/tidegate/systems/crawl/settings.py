"""How pages are crawled: how politely, with which identities, and how often what goes wrong is tried again."""

import re
from datetime import timedelta
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, Field, field_validator

from tidegate import __version__
from tidegate.core.backoff import Backoff
from tidegate.primitives.gate.settings import CredentialLimits

_NONE = timedelta(0)
_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_LINE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
Span = Annotated[timedelta, Gt(_NONE), Le(timedelta(days=31))]
Gap = Annotated[timedelta, Ge(_NONE), Le(timedelta(days=1))]
Brief = Annotated[timedelta, Gt(_NONE), Le(timedelta(hours=1))]


class CrawlSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How pages are crawled. robots.txt is obeyed; only a crawl that says `--ignore-robots` itself does not."""

    delay: Gap = timedelta(seconds=1)
    """The least time between two calls to one host, by all processes together; a longer Crawl-delay goes before it."""
    robots_max_age: Span = timedelta(days=1)
    """For how long a robots.txt counts after it was read."""
    robots_first_pause: Brief = timedelta(seconds=5)
    """How long a host whose robots.txt cannot be read is left alone at first; it doubles with each time."""
    robots_longest_pause: Span = timedelta(minutes=30)
    """And how long at most."""
    user_agent: str | None = Field(default=None, max_length=500)
    """How we introduce ourselves where no identity is stored; else as `tidegate`, with our version and `contact`."""
    contact: str | None = Field(default=None, max_length=200)
    """Where the owner of a site reaches you, an address of a page or of mail: told in the default User-Agent."""
    retry_after_binds: Literal["host", "identity"] = "host"
    """Whom a Retry-After binds: everybody who calls the host, or only the identity that was told."""
    longest_retry_after: Span = timedelta(days=1)
    """A Retry-After that asks for more counts as this."""
    concurrency: int = Field(default=1, ge=1, le=1000)
    """Calls of one identity that may be under way at once, to all hosts together."""
    per_minute: int = Field(default=600, ge=1, le=10**6)
    """Calls of one identity in any minute, to all hosts together."""
    first_rest: Brief = timedelta(seconds=30)
    """How long an identity leaves a host alone that refused it without saying for how long; it doubles where a rest
    soon follows another."""
    sites: tuple[str, ...] = ()
    """Sites of your own, each as `module:name`: a `Site`, or a class or function that makes one without arguments. The
    module is installed, or lies in a folder of PYTHONPATH."""
    raw_attempts: int = Field(default=5, ge=1, le=100)
    """How often a stored answer is tried to be made a product of, until it is a dead letter."""
    raw_first_pause: Brief = timedelta(seconds=2)
    """The longest pause after the first of these failures; it doubles with each."""
    raw_longest_pause: Span = timedelta(minutes=10)
    """And how long it is at most."""
    raws_kept: Span = timedelta(days=7)
    """For how long an answer is kept after it was made a part of a product; dead letters: see
    `retention.dead_letters`."""

    @property
    def honest_user_agent(self) -> str:
        """How we introduce ourselves where no identity is stored."""
        about = "crawler" if self.contact is None else f"crawler; +{self.contact}"
        return self.user_agent or f"tidegate/{__version__} ({about})"

    @property
    def identity_limits(self) -> CredentialLimits:
        """What the gate lets an identity do; no upstream tells how many calls are left."""
        return CredentialLimits(
            concurrency=self.concurrency,
            per_minute=self.per_minute,
            one_at_a_time=frozenset(),
            floor=0,
            metered=False,
        )

    @property
    def robots_pauses(self) -> Backoff:
        """Between two tries to read a robots.txt that cannot be read."""
        return Backoff(first=self.robots_first_pause, most=self.robots_longest_pause, jitter=0.2)

    @property
    def raw_pauses(self) -> Backoff:
        """Between two tries to make a product of a stored answer."""
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
