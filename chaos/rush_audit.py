"""Checks the guarantees afterwards, from the answers, the rows and the server."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import func, select

from chaos.rush_process import COUPONS, POINTS, Told
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.campaign_store import campaign_entries, campaigns, point_accounts
from tidegate.systems.campaigns.model import EntryAnswer

EACH_GETS = 7
"""Points."""
_LASTING = ("c:", "e:", "results")
"""What campaigns leave on the server for good."""


class Verdict(msgspec.Struct, kw_only=True):
    """The result; the list of breaches must be empty."""

    attempts: int = 0
    users: int = 0
    stock: int = 0
    answers: dict[str, int] = {}
    issued: int = 0
    killed: int = 0
    entering_s: float = 0
    """How long the attempts took."""
    attempts_per_s: float = 0
    took_s: float = 0
    breaches: list[str] = []

    @property
    def is_well(self) -> bool:
        """Whether every rule was kept."""
        return not self.breaches


class Row(NamedTuple):
    """What SQL says of one entry."""

    user: str
    number: int
    outcome: str
    code: str | None
    points: int


class Books(NamedTuple):
    """What SQL says of everything."""

    issued: dict[str, int]
    """By the row of each campaign."""
    rows: dict[str, list[Row]]
    accounts: dict[str, int]


async def audit(verdict: Verdict, told: Sequence[Told], database: Database, valkey: Valkey) -> None:
    """Compare them all."""
    books = await database.read(_books)
    verdict.answers = dict(Counter(each.answer for each in told if each.campaign == COUPONS))
    verdict.issued = books.issued[COUPONS]
    verdict.breaches += [
        *of_attempts(told, verdict.attempts),
        *of_coupons(books, verdict),
        *of_points(books, told),
        *of_answers(COUPONS, books.rows[COUPONS], told),
        *of_answers(POINTS, books.rows[POINTS], told),
        *[f"left on the server: {key}" for key in await _left(valkey)],
    ]


def of_attempts(told: Sequence[Told], attempts: int) -> Iterator[str]:
    """Every attempt has an answer, and one."""
    coupons = [each.attempt for each in told if each.campaign == COUPONS]
    if len(coupons) != attempts or len(set(coupons)) != attempts:
        yield f"{len(set(coupons))} attempts have an answer, of {attempts}"
    known = {EntryAnswer.ACCEPTED, EntryAnswer.DUPLICATE, EntryAnswer.SOLD_OUT}
    if strange := Counter(each.answer for each in told if each.answer not in known):
        yield f"answers that cannot be: {dict(strange)}"


def of_coupons(books: Books, verdict: Verdict) -> Iterator[str]:
    """Exactly as many as there are, one for each user, to the first in line."""
    rows, expected = books.rows[COUPONS], min(verdict.stock, verdict.users)
    issued = [row for row in rows if row.outcome == "issued"]
    if others := Counter(row.outcome for row in rows if row.outcome != "issued"):
        yield f"entries without a coupon although no data was lost: {dict(others)}"
    if len(issued) != expected or books.issued[COUPONS] != expected:
        yield f"{len(issued)} rows issued, {books.issued[COUPONS]} counted, of {expected}"
    if sorted(row.number for row in issued) != list(range(1, expected + 1)):
        yield "the users with a coupon are not the first in line"
    if len({row.user for row in issued}) != len(issued):
        yield "a user has two"
    if len({row.code for row in issued}) != len(issued) or any(not row.code for row in issued):
        yield "two coupons have the same code, or one has none"


def of_points(books: Books, told: Sequence[Told]) -> Iterator[str]:
    """Each user once, and the accounts are the sums of the rows."""
    rows, entered = books.rows[POINTS], {each.user for each in told if each.campaign == POINTS}
    if {row.user for row in rows} != entered or any(row.outcome != "issued" for row in rows):
        yield f"{len(rows)} of {len(entered)} have points"
    sums = {row.user: row.points for row in rows}
    if sums != books.accounts or any(points != EACH_GETS for points in sums.values()):
        yield f"{sum(books.accounts.values())} points on accounts, {sum(sums.values())} in rows"
    if books.issued[POINTS] != len(rows):
        yield f"{books.issued[POINTS]} counted, {len(rows)} rows have points"


def of_answers(campaign: str, rows: Sequence[Row], told: Sequence[Told]) -> Iterator[str]:
    """Answers equal results: one accepted attempt for each row, with its number."""
    by_user: defaultdict[str, list[Told]] = defaultdict(list)
    for each in told:
        if each.campaign == campaign:
            by_user[each.user].append(each)
    numbers = {row.user: row.number for row in rows}
    for user, answers in by_user.items():
        accepted = [each for each in answers if each.answer == EntryAnswer.ACCEPTED]
        if user in numbers and len(accepted) != 1:
            yield f"{campaign}: {user} was accepted {len(accepted)} times"
        if user not in numbers and any(each.answer != EntryAnswer.SOLD_OUT for each in answers):
            yield f"{campaign}: {user} was accepted and has no result"
        if {each.number for each in answers if each.number is not None} - {numbers.get(user)}:
            yield f"{campaign}: {user} was answered another number than {numbers.get(user)}"


def entries_written(tx: Transaction) -> int:
    """How many entries something has come of: it only grows."""
    return tx.execute(select(func.count()).select_from(campaign_entries)).scalar_one()


def _books(tx: Transaction) -> Books:
    at = campaign_entries.c
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for campaign, *row in tx.execute(select(at.campaign, at.user_id, at.number, at.outcome, at.code, at.points)):
        rows[campaign].append(Row(*row))
    counted = tx.execute(select(campaigns.c.id, campaigns.c.issued))
    accounts = tx.execute(select(point_accounts.c.user_id, point_accounts.c.points))
    return Books({row[0]: row[1] for row in counted}, rows, {row[0]: row[1] for row in accounts})


async def _left(valkey: Valkey) -> list[str]:
    """Keys of campaigns that should be gone."""
    begin = valkey.unit("campaigns").key("x")[:-1]
    found: set[str] = set()
    cursor = b"0"
    while True:
        cursor, keys = await valkey.execute("SCAN", cursor, "MATCH", f"{begin}*", "COUNT", 1000)
        found |= {key.decode().removeprefix(begin) for key in keys}
        if int(cursor) == 0:
            return sorted(name for name in found if not name.startswith(_LASTING))
