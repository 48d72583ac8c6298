"""Tables of campaigns, decided entries and points, and their rows. Entries are written by `entry_decisions.py`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    Row,
    Table,
    and_,
    delete,
    func,
    or_,
    select,
    update,
)

from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.campaigns.model import (
    LONGEST_CAMPAIGN,
    LONGEST_KEY,
    LONGEST_KIND,
    LONGEST_TITLE,
    LONGEST_USER,
    Campaign,
    CampaignExists,
    CampaignInUse,
    CampaignPlan,
    CampaignState,
    DecidedEntry,
    EntryOutcome,
    EntryVerdict,
    require_times,
)

LONGEST_CODE = 64
LONGEST_REASON = 500
campaigns = Table(
    "campaigns",
    metadata,
    Column("id", exact_text(LONGEST_CAMPAIGN), primary_key=True),
    Column("kind", exact_text(LONGEST_KIND), nullable=False),
    Column("title", exact_text(LONGEST_TITLE), nullable=False),
    Column("state", exact_text(16), nullable=False),
    Column("starts_at", UtcDateTime),
    Column("ends_at", UtcDateTime),
    Column("total_count", Integer, nullable=False),
    # NULL: unlimited.
    Column("stock", Integer),
    Column("points", Integer, nullable=False),
    # Every transaction that issues entries locks this row, so the stock is never exceeded.
    Column("issued", Integer, nullable=False),
    # Raised each time the campaign is installed on the server; numbers of an older epoch may be given again.
    Column("epoch", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""One row per campaign."""
campaign_entries = Table(
    "campaign_entries",
    metadata,
    Column("campaign", exact_text(LONGEST_CAMPAIGN), primary_key=True),
    Column("user_id", exact_text(LONGEST_USER), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("entry_key", exact_text(LONGEST_KEY)),
    Column("outcome", exact_text(16), nullable=False),
    Column("code", exact_text(LONGEST_CODE)),
    Column("points", Integer, nullable=False),
    Column("reason", exact_text(LONGEST_REASON)),
    Column("decided_at", UtcDateTime, nullable=False),
    Index(None, "campaign", "number"),
    **TABLE_OPTIONS,
)
"""One row per user with a decided entry; the primary key prevents a second outcome."""
point_accounts = Table(
    "point_accounts",
    metadata,
    Column("user_id", exact_text(LONGEST_USER), primary_key=True),
    Column("points", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)
"""Points per user, credited in the transaction that writes the entry."""


_c, _e = campaigns.c, campaign_entries.c
_DELETING = "deleting"
"""State of a campaign that is being deleted; it is not found any more. See `installation.py`."""
_THERE = _c.state != _DELETING


class IssuedUser(NamedTuple):
    """An accepted user as the server has to remember it, read from SQL."""

    user: str
    number: int
    key: str | None


def create(tx: Transaction, plan: CampaignPlan) -> Campaign:
    """Create a campaign that users cannot enter yet. Raises `CampaignExists`."""
    row = {
        "id": plan.id,
        "kind": plan.kind,
        "title": plan.title,
        "state": CampaignState.CREATED,
        "starts_at": plan.starts_at,
        "ends_at": plan.ends_at,
        "total_count": plan.total_count,
        "stock": plan.effective_stock,
        "points": plan.points,
        "issued": 0,
        "epoch": 0,
        "created_at": tx.now,
        "changed_at": tx.now,
    }
    if tx.execute(tx.insert_if_absent(campaigns), row).rowcount != 1:
        raise CampaignExists(f"there is a campaign {plan.id!r} already, or one that is being deleted")
    return get(tx, plan.id)


def get(tx: Transaction, ident: str) -> Campaign:
    """Return a campaign. Raises `NotFound`."""
    return _found(ident, tx.execute(select(campaigns).where(_c.id == ident, _THERE)).one_or_none())


def page(tx: Transaction, after: str | None, limit: int) -> list[Campaign]:
    """Return campaigns ordered by id, starting after `after`."""
    query = select(campaigns).where(_THERE).order_by(_c.id).limit(limit)
    return [_campaign(row) for row in tx.execute(query if after is None else query.where(_c.id > after))]


def ids(tx: Transaction, after: str | None, limit: int) -> list[str]:
    """Return ids of campaigns in order, starting after `after`."""
    query = select(_c.id).where(_THERE).order_by(_c.id).limit(limit)
    return list(tx.execute(query if after is None else query.where(_c.id > after)).scalars())


def locked(tx: Transaction, ident: str) -> Campaign:
    """Return a campaign, locked until the commit. Raises `NotFound`."""
    return _found(ident, tx.execute(select(campaigns).where(_c.id == ident, _THERE).with_for_update()).one_or_none())


def touch(tx: Transaction, ident: str) -> None:
    """Write the row of a campaign without changing it; succeeds only if the database accepts writes."""
    tx.execute(update(campaigns).where(_c.id == ident).values(title=_c.title))


def start(tx: Transaction, ident: str, starts_at: datetime | None, ends_at: datetime | None) -> Campaign:
    """Open a campaign from its start until its end; times that are not given are kept. Safe to repeat."""
    campaign = locked(tx, ident)
    starts_at, ends_at = starts_at or campaign.starts_at or tx.now, ends_at or campaign.ends_at
    require_times(starts_at, ends_at)
    if ends_at is not None and ends_at <= tx.now:
        raise InvalidArgument("ends_at", ends_at.isoformat(), "is over: give a later end")
    return _change(tx, campaign, {"state": CampaignState.OPEN, "starts_at": starts_at, "ends_at": ends_at})


def stop(tx: Transaction, ident: str) -> Campaign:
    """Stop a campaign: users cannot enter any more, and accepted entries are still decided. Safe to repeat."""
    return _change(tx, locked(tx, ident), {"state": CampaignState.STOPPED})


def alter(tx: Transaction, ident: str, changes: Mapping[str, Any]) -> Campaign:
    """Change some columns. A stock below the number of issued entries is refused."""
    campaign = locked(tx, ident)
    stock = changes.get("stock")
    if stock is not None and stock < campaign.issued:
        raise InvalidArgument("stock", stock, f"must not be less than the {campaign.issued} that are issued")
    changed = msgspec.structs.replace(campaign, **changes)
    require_times(changed.starts_at, changed.ends_at)
    return _change(tx, campaign, changes)


def ended_before(tx: Transaction, before: datetime, after: str, limit: int) -> list[str]:
    """Return ids, after `after`, of campaigns that ended before a time, and of campaigns that are being deleted."""
    stopped = and_(_c.state == CampaignState.STOPPED, _c.changed_at < before)
    # `changed_at` too: a campaign that was altered or stopped long after its end counts from that change.
    over = or_(_c.state == _DELETING, stopped, and_(_c.ends_at < before, _c.changed_at < before))
    return list(tx.execute(select(_c.id).where(over, _c.id > after).order_by(_c.id).limit(limit)).scalars())


def begin_removal(tx: Transaction, ident: str) -> None:
    """Mark a campaign as being deleted; safe to repeat. Raises `NotFound`, or `CampaignInUse` if it is open."""
    row = tx.execute(select(_c.state, _c.ends_at).where(_c.id == ident).with_for_update()).one_or_none()
    if row is None:
        raise NotFound("campaign", ident)
    # Under the lock: the campaign cannot be started between this check and the mark.
    if row.state == CampaignState.OPEN and (row.ends_at is None or row.ends_at > tx.now):
        raise CampaignInUse(f"campaign {ident!r} is open; stop it before you delete it")
    tx.execute(update(campaigns).where(_c.id == ident).values(state=_DELETING))


def remove_entries(tx: Transaction, ident: str, most: int) -> int:
    """Delete up to `most` entries of a campaign that is being deleted; return the number of deleted rows."""
    users = list(tx.execute(select(_e.user_id).where(_e.campaign == ident).limit(most)).scalars())
    if users:
        tx.execute(delete(campaign_entries).where(_e.campaign == ident, _e.user_id.in_(users)))
    return len(users)


def finish_removal(tx: Transaction, ident: str) -> None:
    """Delete the row of a campaign that is being deleted."""
    tx.execute(delete(campaigns).where(_c.id == ident, _c.state == _DELETING))


def begin_epoch(tx: Transaction, ident: str) -> tuple[Campaign, int]:
    """Begin a new epoch of numbers; return the campaign, and the highest number that was decided so far (0: none)."""
    campaign = locked(tx, ident)
    # Read under the lock, so that the new epoch numbers its entries above all decisions of older ones.
    highest = tx.execute(select(func.max(_e.number)).where(_e.campaign == ident)).scalar_one()
    changed = msgspec.structs.replace(campaign, epoch=campaign.epoch + 1)
    tx.execute(update(campaigns).where(_c.id == ident).values(epoch=changed.epoch))
    return changed, highest or 0


def issued_users(tx: Transaction, ident: str, after: IssuedUser | None, limit: int) -> list[IssuedUser]:
    """Return users with issued entries by number, starting after `after`: what the server has to remember."""
    query = (
        select(_e.user_id, _e.number, _e.entry_key)
        .where(_e.campaign == ident, _e.outcome == EntryVerdict.ISSUED)
        .order_by(_e.number, _e.user_id)
        .limit(limit)
    )
    rows = tx.execute(query if after is None else query.where(_behind(after.number, after.user)))
    return [IssuedUser(*row) for row in rows]


def decided(tx: Transaction, ident: str, user: str) -> DecidedEntry | None:
    """Return the decision about a user's entry; None if there is none yet."""
    row = tx.execute(select(campaign_entries).where(_e.campaign == ident, _e.user_id == user)).one_or_none()
    return None if row is None else _decided(row)


def entries(tx: Transaction, ident: str, after: tuple[int, str] | None, limit: int) -> list[DecidedEntry]:
    """Return decided entries by number, starting after `after`."""
    query = select(campaign_entries).where(_e.campaign == ident).order_by(_e.number, _e.user_id).limit(limit)
    return [_decided(row) for row in tx.execute(query if after is None else query.where(_behind(*after)))]


def points_of(tx: Transaction, user: str) -> int:
    """Return the points on the account of a user, which all campaigns share; 0 if the user has none."""
    found = tx.execute(select(point_accounts.c.points).where(point_accounts.c.user_id == user)).scalar_one_or_none()
    return found or 0


def _behind(number: int, user: str) -> ColumnElement[bool]:
    """Order by number; entries of different epochs with the same number are ordered by user."""
    return (_e.number > number) | ((_e.number == number) & (_e.user_id > user))


def _change(tx: Transaction, campaign: Campaign, values: Mapping[str, Any]) -> Campaign:
    values = {**values, "changed_at": tx.now}
    tx.execute(update(campaigns).where(_c.id == campaign.id).values(values))
    return msgspec.structs.replace(campaign, **values)


def _found(ident: str, row: Row[*tuple[Any, ...]] | None) -> Campaign:
    if row is None:
        raise NotFound("campaign", ident)
    return _campaign(row)


def _campaign(row: Row[*tuple[Any, ...]]) -> Campaign:
    return msgspec.convert(row, Campaign, from_attributes=True)


def _decided(row: Row[*tuple[Any, ...]]) -> DecidedEntry:
    found: Any = row
    return DecidedEntry(
        campaign=found.campaign,
        user=found.user_id,
        number=found.number,
        epoch=found.epoch,
        outcome=EntryOutcome(
            verdict=EntryVerdict(found.outcome), code=found.code, points=found.points, reason=found.reason
        ),
        decided_at=found.decided_at,
        key=found.entry_key,
    )
