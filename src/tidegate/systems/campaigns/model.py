"""What campaigns are made of, and what they answer."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from tidegate.core.arguments import normalise_id, require_at_most, require_whole
from tidegate.core.errors import Conflict, InvalidArgument

FIRST_COME = "FIRST_COME"
POINTS = "POINTS"
MOST_STOCK = 1_000_000_000
MOST_POINTS = 1_000_000_000
MOST_DATA = 4096
"""Bytes of JSON that an entry may bring along."""
LARGEST_PAGE = 500
"""Campaigns or entries that one request may list."""

LONGEST_CAMPAIGN = 64
LONGEST_KIND = 32
LONGEST_TITLE = 200
LONGEST_USER = 128
LONGEST_KEY = 128

CAMPAIGN_ID = "[A-Za-z0-9][A-Za-z0-9._-]*"
KIND_NAME = "[A-Za-z][A-Za-z0-9_]*"
_CAMPAIGN, _KIND = re.compile(CAMPAIGN_ID), re.compile(KIND_NAME)


class CampaignExists(Conflict):
    """There is a campaign of this id already."""


class CampaignInUse(Conflict):
    """The campaign cannot be deleted now: people may enter, or entries are not decided."""


class CampaignState(StrEnum):
    """Whether people may enter, besides the campaign's times."""

    CREATED = "created"  # nobody may yet
    OPEN = "open"  # from its start until its end everybody may
    STOPPED = "stopped"  # nobody may any more; what was accepted is still decided


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign is made of."""

    id: str
    kind: str
    """FIRST_COME, POINTS, or one of your own."""
    total_count: int
    """How many entries are expected: it says how many consumers a consumer pool has. For FIRST_COME also the stock."""
    stock: int | None = None
    """How many are issued at most; None: those of `total_count` for FIRST_COME, else no bound."""
    points: int = 0
    """What each user gets of a POINTS campaign."""
    title: str = ""
    starts_at: datetime | None = None
    """None: as soon as it is started."""
    ends_at: datetime | None = None
    """None: when it is stopped."""

    def __post_init__(self) -> None:
        require_campaign(self.id)
        require_kind(self.kind)
        require_whole("total_count", self.total_count, least=1, most=MOST_STOCK)
        require_whole("points", self.points, least=0, most=MOST_POINTS)
        if self.stock is not None:
            require_whole("stock", self.stock, least=0, most=MOST_STOCK)
        if self.kind == POINTS and not self.points:
            raise InvalidArgument("points", self.points, "a POINTS campaign gives at least one")
        require_title(self.title)
        require_times(self.starts_at, self.ends_at)

    @property
    def effective_stock(self) -> int | None:
        """How many are issued at most, None: no bound."""
        return self.total_count if self.stock is None and self.kind == FIRST_COME else self.stock


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as its row has it."""

    id: str
    kind: str
    title: str
    state: CampaignState
    starts_at: datetime | None
    ends_at: datetime | None
    total_count: int
    stock: int | None
    """How many are issued at most, None: no bound."""
    points: int
    issued: int
    epoch: int
    created_at: datetime
    changed_at: datetime

    @property
    def left(self) -> int | None:
        """How many can still be issued, None: no bound."""
        return None if self.stock is None else max(0, self.stock - self.issued)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a campaign's stream: somebody whom the door let in."""

    user: str
    number: int
    """The how-maniest the door let in; under one epoch no two have the same."""
    epoch: int
    at_ms: int
    """When, by the server's clock."""
    key: str | None = None
    data: Any = None


class Verdict(StrEnum):
    """What became of an entry that was accepted."""

    ISSUED = "issued"  # the user has it, once and for ever
    REFUSED = "refused"  # its processor said no; he may try again
    SOLD_OUT = "sold_out"  # the stock was gone, although the door let him in: only after a loss of the server's data


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a processor decided about one entry."""

    verdict: Verdict
    code: str | None = None
    """The coupon."""
    points: int = 0
    reason: str | None = None


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """An entry's row."""

    campaign: str
    user: str
    number: int
    epoch: int
    outcome: Outcome
    decided_at: datetime
    key: str | None = None


class Answer(StrEnum):
    """What the door says."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    SOLD_OUT = "SOLD_OUT"
    NOT_OPEN = "NOT_OPEN"
    BUSY = "BUSY"


class Entered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The door's answer to one attempt."""

    answer: Answer
    number: int | None = None
    """Of ACCEPTED and DUPLICATE: the user's number in the line."""
    opens_in_ms: int | None = None
    """Of NOT_OPEN: until the start; None when it is over or stopped, or has no start yet."""


class ResultState(StrEnum):
    """How far an entry is."""

    PENDING = "pending"  # accepted, in line
    ISSUED = "issued"
    REFUSED = "refused"
    SOLD_OUT = "sold_out"
    FAILED = "failed"  # a dead letter: somebody must look at it
    UNKNOWN = "unknown"  # this user has not entered


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one user's entry, as far as it is known."""

    campaign: str
    user: str
    state: ResultState
    number: int | None = None
    code: str | None = None
    points: int = 0
    reason: str | None = None
    decided_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state not in (ResultState.PENDING, ResultState.UNKNOWN)


def require_campaign(ident: str) -> str:
    """An id for a campaign: it stands in addresses as it is."""
    require_at_most("len(campaign)", len(ident), LONGEST_CAMPAIGN)
    if not _CAMPAIGN.fullmatch(ident):
        raise InvalidArgument(
            "campaign", ident, "must be letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return ident


def require_kind(kind: str) -> str:
    """A name for a kind."""
    require_at_most("len(kind)", len(kind), LONGEST_KIND)
    if not _KIND.fullmatch(kind):
        raise InvalidArgument("kind", kind, "must be letters, digits and underscores, a letter first")
    return kind


def require_user(user: str) -> str:
    """The id of a user, normalised; raise `InvalidArgument`."""
    return normalise_id("user", user, longest=LONGEST_USER)


def require_key(key: str) -> str:
    """An idempotency key."""
    return _require_text("key", key, LONGEST_KEY)


def require_title(title: str) -> str:
    """What people see; may be empty."""
    require_at_most("len(title)", len(title), LONGEST_TITLE)
    if not title.isprintable():
        raise InvalidArgument("title", title, "must be printable")
    return title


def require_times(starts_at: datetime | None, ends_at: datetime | None) -> None:
    """With a zone, and in this order."""
    for name, moment in (("starts_at", starts_at), ("ends_at", ends_at)):
        if moment is not None and moment.tzinfo is None:
            raise InvalidArgument(name, moment.isoformat(), "must have a time zone")
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        raise InvalidArgument("ends_at", ends_at.isoformat(), "must be after the start")


def _require_text(name: str, value: str, longest: int) -> str:
    if not value:
        raise InvalidArgument(name, value, "must not be empty")
    require_at_most(f"len({name})", len(value), longest)
    if not value.isprintable():
        raise InvalidArgument(name, value, "must be printable")
    return value
