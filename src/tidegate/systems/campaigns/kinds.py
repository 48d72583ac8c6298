"""Kinds of campaigns: what an entry gives to its user."""

import secrets
from base64 import b32encode
from collections.abc import Iterable, Sequence
from typing import Protocol

from tidegate.core.errors import InvalidSettings, NotFound
from tidegate.core.plugins import load_part
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.systems.campaigns.model import (
    FIRST_COME,
    POINTS,
    Campaign,
    CampaignEntry,
    EntryOutcome,
    EntryVerdict,
    require_kind,
)

_VARIABLE = "TIDEGATE_CAMPAIGNS__KINDS"


class KindUnknown(NotFound):
    """This process does not know the kind of the campaign; another process may."""


class CampaignKind(Protocol):
    """Decides entries, in the transaction that writes the decisions; effects through `tx` happen exactly once.

    It must have no other effects, since it may run again. It receives at most as many entries as the stock has left,
    and each user once. An exception is attributed to an entry: the entry is found, and retried later.
    """

    @property
    def kind(self) -> str:
        """Name of the kind."""
        ...

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        """Return the outcome of each entry, in their order: issued or refused."""
        ...


class Kinds:
    """The kinds that a process knows, by name."""

    def __init__(self, kinds: Iterable[CampaignKind]) -> None:
        kinds = list(kinds)
        self._kinds = {require_kind(each.kind): each for each in kinds}
        if len(self._kinds) != len(kinds):
            raise InvalidSettings(f"two kinds of campaigns have one name: {', '.join(each.kind for each in kinds)}")

    def get(self, kind: str) -> CampaignKind:
        """Return a kind. Raises `KindUnknown`."""
        found = self._kinds.get(kind)
        if found is None:
            raise KindUnknown("kind of campaigns", kind, known=self._kinds)
        return found

    @property
    def names(self) -> list[str]:
        """Names of the known kinds."""
        return sorted(self._kinds)


def load_kind(place: str) -> CampaignKind:
    """Load the kind at `module:name`; a class is instantiated without arguments."""
    return load_part(
        place,
        variable=_VARIABLE,
        what="kind of campaigns",
        needs=("kind", "apply"),
        is_made=lambda found: not isinstance(found, type),
    )


_CODE_BYTES = 10
"""80 bits, which cannot be guessed, as 16 letters and digits that are not confused with each other."""


class FirstCome:
    """FIRST_COME: one coupon per user."""

    kind = FIRST_COME

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:  # noqa: ARG002
        """Issue a new coupon code to each entry."""
        return [EntryOutcome(verdict=EntryVerdict.ISSUED, code=code) for code in _new_codes(len(entries))]


def _new_codes(count: int) -> list[str]:
    drawn = secrets.token_bytes(count * _CODE_BYTES)
    return [b32encode(drawn[start : start + _CODE_BYTES]).decode() for start in range(0, len(drawn), _CODE_BYTES)]


class Points:
    """POINTS: the same number of points per user, credited in the transaction that decides the entry."""

    kind = POINTS

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        """Credit the campaign's points to each user."""
        # Sorted, so that two campaigns that credit the same users cannot deadlock.
        _CREDIT.run(tx, given=sorted((entry.user, campaign.points) for entry in entries))
        return [EntryOutcome(verdict=EntryVerdict.ISSUED, points=campaign.points)] * len(entries)


_GIVEN = ":given(user_id text, points number)"
_ADDED = "ON CONFLICT (user_id) DO UPDATE SET points = point_accounts.points + excluded.points"
_INSERT = f"INSERT INTO point_accounts (user_id, points) SELECT given.user_id, given.points FROM {_GIVEN}"  # noqa: S608
_CREDIT = Statement(
    {
        # Without a WHERE, SQLite would take ON for the beginning of a join's condition.
        "sqlite": f"{_INSERT} WHERE true {_ADDED}",
        "postgresql": f"{_INSERT} {_ADDED}",
        "mysql": f"{_INSERT} ON DUPLICATE KEY UPDATE points = point_accounts.points + VALUES(points)",
    }
)
