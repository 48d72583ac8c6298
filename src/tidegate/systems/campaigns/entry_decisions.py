"""Decides entries in one transaction, each exactly once. SQL is the judge: what it has written stands.

no row of this user               decided now: issued while the stock lasts, by number
a row of the same entry           it came again, since somebody died before he said that it was done: what it was
another entry, and it was issued  the door had forgotten this user: he has what he got then
another entry, and it was not     he may try again: decided now
"""

from collections.abc import Sequence

import msgspec

from tidegate.core.errors import ContractBroken
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.systems.campaigns import records
from tidegate.systems.campaigns.campaign import Campaign, Entry, Outcome, Verdict
from tidegate.systems.campaigns.keys import remembered
from tidegate.systems.campaigns.kinds import CampaignKind, Kinds
from tidegate.systems.campaigns.tables import LONGEST_REASON

KNOWN = "known"
"""The user has a row of another entry, which stands."""


class Decision(msgspec.Struct, frozen=True):
    """What the door has to be told about one entry."""

    verdict: str
    """That of a `Verdict`, or `KNOWN`."""
    memory: str
    """What the door keeps of the user; for `KNOWN`, what it should."""


class Applied(msgspec.Struct, frozen=True):
    """What a transaction decided."""

    decisions: Sequence[Decision]
    """In the order of the entries."""
    sold_out: int
    """The stock, where entries came for which nothing of it was left; else -1."""


def apply_entries(tx: Transaction, kinds: Kinds, ident: str, entries: Sequence[Entry]) -> Applied:
    """Decide these entries of one campaign, and write it. Others wait until the commit, and see what was written."""
    campaign = records.locked(tx, ident)
    kind = kinds.get(campaign.kind)
    decisions: dict[int, Decision] = {}
    left, is_sold_out = sorted(range(len(entries)), key=lambda n: entries[n].number), False
    while left:
        turn, left = _one_of_each_user(entries, left)
        decided, issued = _decide(tx, kind, campaign, [entries[n] for n in turn])
        decisions |= zip(turn, decided, strict=True)
        campaign = msgspec.structs.replace(campaign, issued=campaign.issued + issued)
        is_sold_out = is_sold_out or any(each.verdict == Verdict.SOLD_OUT for each in decided)
    in_order = [decisions[n] for n in range(len(entries))]
    is_all_gone = is_sold_out and campaign.left == 0
    return Applied(in_order, campaign.stock if is_all_gone and campaign.stock is not None else -1)


def _one_of_each_user(entries: Sequence[Entry], wanted: Sequence[int]) -> tuple[list[int], list[int]]:
    """Which are decided now, and which after them: whoever came twice has a row the second time."""
    seen: set[str] = set()
    now: list[int] = []
    later: list[int] = []
    for n in wanted:
        (later if entries[n].user in seen else now).append(n)
        seen.add(entries[n].user)
    return now, later


def _decide(
    tx: Transaction, kind: CampaignKind, campaign: Campaign, entries: Sequence[Entry]
) -> tuple[list[Decision], int]:
    """What becomes of entries of different users, in order of their numbers; and how many are issued by that."""
    found = _FOUND.rows(tx, campaign=campaign.id, wanted=[(entry.user,) for entry in entries])
    rows = {user: (number, epoch, verdict, key) for user, number, epoch, verdict, key in found}
    decisions: dict[str, Decision] = {}
    fresh: list[Entry] = []
    void: list[str] = []
    for entry in entries:
        row = rows.get(entry.user)
        if row is None:
            fresh.append(entry)
        elif row[:2] == (entry.number, entry.epoch):
            decisions[entry.user] = Decision(row[2], remembered(entry.number, entry.key))
        elif row[2] == Verdict.ISSUED:
            decisions[entry.user] = Decision(KNOWN, remembered(row[0], row[3]))
        else:
            void.append(entry.user)
            fresh.append(entry)
    if void:
        _FORGET.run(tx, campaign=campaign.id, void=[(user,) for user in void])
    outcomes = _give(tx, kind, campaign, fresh)
    _write(tx, campaign, fresh, outcomes)
    for entry, outcome in zip(fresh, outcomes, strict=True):
        decisions[entry.user] = Decision(outcome.verdict.value, remembered(entry.number, entry.key))
    issued = sum(outcome.verdict is Verdict.ISSUED for outcome in outcomes)
    return [decisions[entry.user] for entry in entries], issued


def _give(tx: Transaction, kind: CampaignKind, campaign: Campaign, entries: Sequence[Entry]) -> list[Outcome]:
    """Give out of what is left, by number. What its kind refuses to somebody is there for the next one."""
    outcomes: list[Outcome] = []
    left = campaign.left
    while len(outcomes) < len(entries) and left != 0:
        start = len(outcomes)
        asked = entries[start:] if left is None else entries[start : start + left]
        answers = kind.apply(tx, campaign, asked)
        if len(answers) != len(asked):
            raise ContractBroken(f"{kind.kind} was asked about {len(asked)} entries, and answered {len(answers)}")
        outcomes += answers
        if left is not None:
            left -= sum(answer.verdict is Verdict.ISSUED for answer in answers)
    return outcomes + [Outcome(verdict=Verdict.SOLD_OUT)] * (len(entries) - len(outcomes))


def _write(tx: Transaction, campaign: Campaign, entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
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
    # Not one that leaves out what is there: the key is the last guard against two of one user.
    _INSERT.run(tx, campaign=campaign.id, given=rows, now=tx.now)
    issued = sum(outcome.verdict is Verdict.ISSUED for outcome in outcomes)
    if issued and _COUNT.run(tx, campaign=campaign.id, issued=issued).rowcount != 1:
        raise ContractBroken(f"campaign {campaign.id!r} has not {issued} left to issue")


def _kept(outcome: Outcome) -> str | None:
    return None if outcome.reason is None else fit_to_keep(outcome.reason, most=LONGEST_REASON)


_WANTED = """
SELECT e.user_id, e.number, e.epoch, e.outcome, e.entry_key
FROM :wanted(wanted_user text) {join} campaign_entries e ON e.campaign = :campaign AND e.user_id = wanted.wanted_user"""
_FOUND = Statement(
    # Users first: a server that begins with the campaign's rows would read them all for each batch.
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
