"""Campaigns, entries and their states, and the limits that every part of the system checks."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tidegate.core.arguments import normalise_id, require_at_most, require_whole
from tidegate.core.errors import Conflict, InvalidArgument

FIRST_COME = "FIRST_COME"
POINTS = "POINTS"
MOST_STOCK = 1_000_000_000
MOST_POINTS = 1_000_000_000
MOST_DATA = 4096
"""Bytes of JSON that an entry may carry."""
LARGEST_PAGE = 500
"""Campaigns or entries per page."""
LONGEST_CAMPAIGN = 64
LONGEST_KIND = 32
LONGEST_TITLE = 200
LONGEST_USER = 128
LONGEST_KEY = 128
CAMPAIGN_ID = "[A-Za-z0-9][A-Za-z0-9._-]*"
KIND_NAME = "[A-Za-z][A-Za-z0-9_]*"
_CAMPAIGN, _KIND = re.compile(CAMPAIGN_ID), re.compile(KIND_NAME)


class CampaignExists(Conflict):
    """A campaign with this id exists."""


class CampaignInUse(Conflict):
    """The campaign cannot be deleted now: users can enter, or entries are not decided."""


class CampaignState(StrEnum):
    """Whether users can enter, within the campaign's times."""

    CREATED = "created"  # users cannot enter yet
    OPEN = "open"  # users can enter from its start until its end
    STOPPED = "stopped"  # users cannot enter any more; accepted entries are still decided


class CampaignPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a new campaign."""

    id: str
    kind: str
    """FIRST_COME, POINTS, or a custom kind."""
    total_count: int
    """Expected number of entries, which determines the number of consumers. For FIRST_COME also the default stock."""
    stock: int | None = None
    """Largest number of issued entries; None: `total_count` for FIRST_COME, else unlimited."""
    points: int = 0
    """Points per user of a POINTS campaign."""
    title: str = ""
    starts_at: datetime | None = None
    """None: as soon as the campaign is started."""
    ends_at: datetime | None = None
    """None: until the campaign is stopped."""

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
        """Largest number of issued entries; None: unlimited."""
        return self.total_count if self.stock is None and self.kind == FIRST_COME else self.stock


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign as stored in SQL."""

    id: str
    kind: str
    title: str
    state: CampaignState
    starts_at: datetime | None
    ends_at: datetime | None
    total_count: int
    stock: int | None
    """Largest number of issued entries; None: unlimited."""
    points: int
    issued: int
    epoch: int
    created_at: datetime
    changed_at: datetime

    @property
    def left(self) -> int | None:
        """How many entries can still be issued; None: unlimited."""
        return None if self.stock is None else max(0, self.stock - self.issued)


class CampaignEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted entry: a message of the campaign's stream."""

    user: str
    number: int
    """Number in order of acceptance, starting at 1; unique within an epoch."""
    epoch: int
    at_ms: int
    """Time of acceptance by the server's clock."""
    key: str | None = None
    data: Any = None


class EntryVerdict(StrEnum):
    """Decision about an accepted entry."""

    ISSUED = "issued"  # the user has it; final
    REFUSED = "refused"  # its kind refused it; the user may try again
    SOLD_OUT = "sold_out"  # the stock was used up although the entry was accepted: only after data loss on the server


class EntryOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Decision of a kind about one entry."""

    verdict: EntryVerdict
    code: str | None = None
    """The coupon code."""
    points: int = 0
    reason: str | None = None


class DecidedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A decided entry as stored in SQL."""

    campaign: str
    user: str
    number: int
    epoch: int
    outcome: EntryOutcome
    decided_at: datetime
    key: str | None = None


class EntryAnswer(StrEnum):
    """Answer to an attempt to enter."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    SOLD_OUT = "SOLD_OUT"
    NOT_OPEN = "NOT_OPEN"
    BUSY = "BUSY"


class EntryReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer to one attempt to enter, with details."""

    answer: EntryAnswer
    number: int | None = None
    """Of ACCEPTED and DUPLICATE: the number of the user's entry."""
    opens_in_ms: int | None = None
    """Of NOT_OPEN: time until the start; None if the campaign is over or stopped, or has no start yet."""


class EntryState(StrEnum):
    """State of a user's entry."""

    PENDING = "pending"  # accepted, not decided yet
    ISSUED = "issued"
    REFUSED = "refused"
    SOLD_OUT = "sold_out"
    FAILED = "failed"  # a dead letter: an operator has to replay or discard it
    UNKNOWN = "unknown"  # the user has not entered


class EntryResult(msgspec.Struct, frozen=True, kw_only=True):
    """State and outcome of one user's entry."""

    campaign: str
    user: str
    state: EntryState
    number: int | None = None
    code: str | None = None
    points: int = 0
    reason: str | None = None
    decided_at: datetime | None = None

    @property
    def is_final(self) -> bool:
        """Whether the state changes no more without an operator."""
        return self.state not in (EntryState.PENDING, EntryState.UNKNOWN)


def require_campaign(ident: str) -> str:
    """Return the id of a campaign if it is valid, else raise `InvalidArgument`. It is used unescaped in addresses."""
    require_at_most("len(campaign)", len(ident), LONGEST_CAMPAIGN)
    if not _CAMPAIGN.fullmatch(ident):
        raise InvalidArgument(
            "campaign", ident, "must be letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return ident


def require_kind(kind: str) -> str:
    """Return the name of a kind if it is valid, else raise `InvalidArgument`."""
    require_at_most("len(kind)", len(kind), LONGEST_KIND)
    if not _KIND.fullmatch(kind):
        raise InvalidArgument("kind", kind, "must be letters, digits and underscores, a letter first")
    return kind


def require_user(user: str) -> str:
    """Return the normalised id of a user. Raises `InvalidArgument`."""
    return normalise_id("user", user, longest=LONGEST_USER)


def require_key(key: str) -> str:
    """Return an idempotency key if it is valid, else raise `InvalidArgument`."""
    return _require_text("key", key, LONGEST_KEY)


def require_title(title: str) -> str:
    """Return a title if it is valid; it may be empty."""
    require_at_most("len(title)", len(title), LONGEST_TITLE)
    if not title.isprintable():
        raise InvalidArgument("title", title, "must be printable")
    return title


def require_times(starts_at: datetime | None, ends_at: datetime | None) -> None:
    """Raise `InvalidArgument` unless the times have time zones and are in order."""
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


class CampaignChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a campaign; fields that are not given are kept."""

    title: str | UnsetType = UNSET
    total_count: int | UnsetType = UNSET
    stock: int | UnsetType | None = UNSET
    points: int | UnsetType = UNSET
    starts_at: datetime | UnsetType | None = UNSET
    ends_at: datetime | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if not isinstance(self.title, UnsetType):
            require_title(self.title)
        if not isinstance(self.total_count, UnsetType):
            require_whole("total_count", self.total_count, least=1, most=MOST_STOCK)
        if self.stock is not None and not isinstance(self.stock, UnsetType):
            require_whole("stock", self.stock, least=0, most=MOST_STOCK)
        if not isinstance(self.points, UnsetType):
            require_whole("points", self.points, least=0, most=MOST_POINTS)


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign and its current state."""

    campaign: Campaign
    depth: int
    """Undecided entries."""
    pending: int
    """Undecided entries that a consumer holds."""
    lag: int
    """Undecided entries that no consumer has read."""
    dead: int
    """Dead letters; not part of `depth`."""
    processes: list[str]
    """The processes that serve it."""
    consumers: int
    """Consumers of these processes, if all have the settings of this one."""
    is_woken: bool
    """Whether a wake-up for another process is pending."""
    idle_ms: int | None
    """Time since the last entry; None if there was none."""
    entered: int
    """The last number that was given to an entry."""
    remembered: int
    """Accepted users that the server remembers."""
    is_installed: bool
    """Whether the server knows the campaign; it is installed with the first entry."""


class CampaignBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """Undecided entries of one campaign."""

    depth: int
    """Undecided entries."""
    dead: int
    """Dead letters."""
    entered: int
    """The last number that was given to an entry."""
