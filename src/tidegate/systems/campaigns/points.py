"""POINTS: the same number of points for each user, once."""

from collections.abc import Sequence

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.statements import Statement
from tidegate.systems.campaigns.campaign import POINTS, Campaign, Entry, Outcome, Verdict


class Points:
    """Points on the user's account, credited with the entry."""

    kind = POINTS

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """The campaign's points for each."""
        # In one order in every transaction: two campaigns that credit the same users do not lock each other out.
        _CREDIT.run(tx, given=sorted((entry.user, campaign.points) for entry in entries))
        return [Outcome(verdict=Verdict.ISSUED, points=campaign.points)] * len(entries)


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
