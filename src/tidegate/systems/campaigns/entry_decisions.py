"""Decides entries in one transaction, each exactly once. A decision that SQL has is final.

| row of the user | decision |
| --- | --- |
| none | decided now: issued while the stock lasts, ordered by number |
| of the same entry | delivered again after a crash: the stored decision |
| of another entry, issued | the server had forgotten the user: the stored decision |
| of another entry, not issued | the user tries again: decided now |
"""

from collections.abc import Sequence

import msgspec

from tidegate.core.errors import ContractBroken
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import LONGEST_REASON
from tidegate.systems.campaigns.kinds import CampaignKind, Kinds
from tidegate.systems.campaigns.model import Campaign, CampaignEntry, EntryOutcome, EntryVerdict
from tidegate.systems.campaigns.scripts import remembered

KNOWN = "known"
"""The user has a row of another entry, which is kept."""


class EntryDecision(msgspec.Struct, frozen=True):
    """Decision about one entry, as it is reported to the server."""

    verdict: str
    """Value of an `EntryVerdict`, or `KNOWN`."""
    memory: str
    """What the server stores for the user; for `KNOWN`, what it should store."""


class AppliedEntries(msgspec.Struct, frozen=True):
    """Decisions of one transaction."""

    decisions: Sequence[EntryDecision]
    """In the order of the entries."""
    sold_out: int
    """The stock, if an entry was refused because it is used up; else -1."""


def apply_entries(tx: Transaction, kinds: Kinds, ident: str, entries: Sequence[CampaignEntry]) -> AppliedEntries:
    """Decide entries of one campaign and write the decisions. Concurrent transactions wait until the commit."""
    campaign = campaign_store.locked(tx, ident)
    kind = kinds.get(campaign.kind)
    decisions: dict[int, EntryDecision] = {}
    # In the order of acceptance, so that the stock goes to the lower numbers. Results return in
    # the order of the arguments.
    left, is_sold_out = sorted(range(len(entries)), key=lambda n: entries[n].number), False
    while left:
        turn, left = _one_of_each_user(entries, left)
        decided, issued = _decide(tx, kind, campaign, [entries[n] for n in turn])
        decisions |= zip(turn, decided, strict=True)
        # The next turn sees what this one has issued; the row in SQL is counted by `_write`.
        campaign = msgspec.structs.replace(campaign, issued=campaign.issued + issued)
        is_sold_out = is_sold_out or any(each.verdict == EntryVerdict.SOLD_OUT for each in decided)
    in_order = [decisions[n] for n in range(len(entries))]
    # Only an empty stock is reported: the entry script then refuses all further attempts.
    is_all_gone = is_sold_out and campaign.left == 0
    return AppliedEntries(in_order, campaign.stock if is_all_gone and campaign.stock is not None else -1)


def _one_of_each_user(entries: Sequence[CampaignEntry], wanted: Sequence[int]) -> tuple[list[int], list[int]]:
    """Split entries into those that are decided now and later: a user's second entry is decided after the first."""
    seen: set[str] = set()
    now: list[int] = []
    later: list[int] = []
    for n in wanted:
        (later if entries[n].user in seen else now).append(n)
        seen.add(entries[n].user)
    return now, later


def _decide(
    tx: Transaction, kind: CampaignKind, campaign: Campaign, entries: Sequence[CampaignEntry]
) -> tuple[list[EntryDecision], int]:
    """Decide entries of different users by number; return the decisions and the number of issued entries."""
    found = _FOUND.rows(tx, campaign=campaign.id, wanted=[(entry.user,) for entry in entries])
    rows = {user: (number, epoch, verdict, key) for user, number, epoch, verdict, key in found}
    decisions: dict[str, EntryDecision] = {}
    fresh: list[CampaignEntry] = []
    void: list[str] = []
    for entry in entries:
        row = rows.get(entry.user)
        if row is None:
            fresh.append(entry)
        # Number and epoch: after a loss of data, another entry may have the same number.
        elif row[:2] == (entry.number, entry.epoch):
            decisions[entry.user] = EntryDecision(row[2], remembered(entry.number, entry.key))
        elif row[2] == EntryVerdict.ISSUED:
            decisions[entry.user] = EntryDecision(KNOWN, remembered(row[0], row[3]))
        else:
            void.append(entry.user)
            fresh.append(entry)
    if void:
        _FORGET.run(tx, campaign=campaign.id, void=[(user,) for user in void])
    # Effects of the kind, rows and counter are in one transaction: all happen exactly once, or none.
    outcomes = _give(tx, kind, campaign, fresh)
    _write(tx, campaign, fresh, outcomes)
    for entry, outcome in zip(fresh, outcomes, strict=True):
        decisions[entry.user] = EntryDecision(outcome.verdict.value, remembered(entry.number, entry.key))
    issued = sum(outcome.verdict is EntryVerdict.ISSUED for outcome in outcomes)
    return [decisions[entry.user] for entry in entries], issued


def _give(
    tx: Transaction, kind: CampaignKind, campaign: Campaign, entries: Sequence[CampaignEntry]
) -> list[EntryOutcome]:
    """Issue the remaining stock by number. An entry that its kind refuses leaves its share to the next one."""
    outcomes: list[EntryOutcome] = []
    left = campaign.left
    while len(outcomes) < len(entries) and left != 0:
        start = len(outcomes)
        # Ask only for as many as are left. After refusals, ask again with the entries that follow.
        asked = entries[start:] if left is None else entries[start : start + left]
        answers = kind.apply(tx, campaign, asked)
        # Kinds may be code of users; a wrong length would assign outcomes to other users.
        if len(answers) != len(asked):
            raise ContractBroken(f"{kind.kind} was asked about {len(asked)} entries, and answered {len(answers)}")
        outcomes += answers
        if left is not None:
            left -= sum(answer.verdict is EntryVerdict.ISSUED for answer in answers)
    return outcomes + [EntryOutcome(verdict=EntryVerdict.SOLD_OUT)] * (len(entries) - len(outcomes))


def _write(
    tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry], outcomes: Sequence[EntryOutcome]
) -> None:
    """Insert the entries with their outcomes, and count what was issued.

    Raises `ContractBroken` if the campaign has less left to issue.
    """
    if not entries:
        return
    rows = [
        (
            entry.user,
            entry.number,
            entry.epoch,
            entry.key,
            outcome.verdict,
            outcome.code,
            outcome.points,
            _kept(outcome),
        )
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]
    # An insert that skips existing rows would hide a second entry of a user; the key is the last guard.
    _INSERT.run(tx, campaign=campaign.id, given=rows, now=tx.now)
    issued = sum(outcome.verdict is EntryVerdict.ISSUED for outcome in outcomes)
    if issued and _COUNT.run(tx, campaign=campaign.id, issued=issued).rowcount != 1:
        raise ContractBroken(f"campaign {campaign.id!r} has not {issued} left to issue")


def _kept(outcome: EntryOutcome) -> str | None:
    return None if outcome.reason is None else fit_to_keep(outcome.reason, most=LONGEST_REASON)


_WANTED = """
SELECT e.user_id, e.number, e.epoch, e.outcome, e.entry_key
FROM :wanted(wanted_user text) {join} campaign_entries e ON e.campaign = :campaign AND e.user_id = wanted.wanted_user"""
_FOUND = Statement(
    # The users come first in the join: a plan that begins with the campaign would read all its rows for each batch.
    {
        "sqlite": _WANTED.format(join="CROSS JOIN"),
        "postgresql": _WANTED.format(join="JOIN"),
        "mysql": _WANTED.format(join="STRAIGHT_JOIN"),
    },
    returns=("user_id", "number", "epoch", "outcome", "entry_key"),
)
_FORGET = Statement(
    """
DELETE FROM campaign_entries
WHERE campaign = :campaign AND user_id IN (SELECT void.void_user FROM :void(void_user text))"""
)
_COLUMNS = "user_id, number, epoch, entry_key, outcome, code, points, reason"
_ROWS = """:given(
  user_id text, number number, epoch number, entry_key text, outcome text, code text, points number, reason text
)"""
_INTO = f"INSERT INTO campaign_entries (campaign, decided_at, {_COLUMNS}) SELECT"
_INSERT = Statement(
    {
        "sqlite": f"{_INTO} :campaign, :now, {_COLUMNS} FROM {_ROWS}",
        "postgresql": f"{_INTO} :campaign::text, :now::timestamptz, {_COLUMNS} FROM {_ROWS}",
        "mysql": f"{_INTO} :campaign, :now, {_COLUMNS} FROM {_ROWS}",
    }
)
_COUNT = Statement(
    """
UPDATE campaigns SET issued = issued + :issued
WHERE id = :campaign AND (stock IS NULL OR issued + :issued <= stock)"""
)
