"""Tables of boards, counted events and scores, and their rows. Every function works in the caller's transaction.

- An event counts once, in those of its windows that are still kept. An event in none of them changes nothing, so
  counted events need not be stored for longer.
- A score is the sum of its events, and was reached at the time of the latest one. Both are independent of the order of
  the events, so a recount gives the same ranking, including ties.
- Scores only grow, so of two scores of a member in a window, the higher one is the newer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import msgspec
from sqlalchemy import BigInteger, Column, Index, Table, bindparam, delete, func, select, update

from tidegate.storage.sql import Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, UtcDateTime, exact_text, metadata
from tidegate.systems.ranking.model import (
    REACH,
    CountedEvent,
    CountResult,
    MemberScores,
    RankingPeriod,
    Score,
    Window,
    Windows,
    oldest_kept,
    windows_at,
)
from tidegate.systems.ranking.settings import LONGEST_BOARD, Board

LONGEST_ID = 200
ranking_boards = Table(
    "ranking_boards",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    # Calendar by which the scores of the board were computed; after a change of the setting they are recomputed.
    Column("timezone", exact_text(64), nullable=False),
    **TABLE_OPTIONS,
)
"""One row per board, which every counting transaction locks: transactions of one board run one after the other."""
ranking_events = Table(
    "ranking_events",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    Column("event_id", exact_text(LONGEST_ID), primary_key=True),
    Column("member", exact_text(LONGEST_ID), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("happened_at", UtcDateTime, nullable=False),
    Index(None, "board", "happened_at"),
    **TABLE_OPTIONS,
)
"""Counted events, each once. A row is deleted when every window that it counted in is gone."""
ranking_scores = Table(
    "ranking_scores",
    metadata,
    Column("board", exact_text(LONGEST_BOARD), primary_key=True),
    Column("period", exact_text(8), primary_key=True),
    Column("window_name", exact_text(10), primary_key=True),
    Column("member", exact_text(LONGEST_ID), primary_key=True),
    Column("score", BigInteger, nullable=False),
    # Time of the latest event of the score, in whatever order the events came.
    Column("reached_at", UtcDateTime, nullable=False),
    **TABLE_OPTIONS,
)
"""Scores of members per window."""


_b, _e, _s = ranking_boards.c, ranking_events.c, ranking_scores.c
_CHUNK = 1000
T = TypeVar("T")
_Place = tuple[str, str, str]
"""Period, window and member: the key of a score."""


class _Sum(msgspec.Struct):
    amount: int
    latest: datetime

    def add(self, amount: int, at: datetime) -> None:
        self.amount, self.latest = self.amount + amount, max(self.latest, at)


def count(tx: Transaction, board: Board, counts: Sequence[CountedEvent]) -> CountResult:
    """Count those of the events that were not counted before."""
    lock(tx, board)
    windows = {each: _windows_of(each.at, board, tx.now) for each in counts}
    in_time = {each.event_id: each for each in counts if _counts_somewhere(windows[each], tx.now)}
    known = _known(tx, board, in_time)
    # In the order of the primary key. Under the lock of the board, no other transaction inserts the same events.
    new = [each for event_id, each in sorted(in_time.items()) if event_id not in known]
    tx.insert_many(ranking_events, [_event_row(board, each) for each in new])
    # Also members of events that were counted before: their scores may not have reached the server.
    members = {(each.member, ours) for each in in_time.values() if (ours := windows[each]) is not None}
    present = _present(tx, board, {_place(window, member) for member, ours in members for window in ours})
    # The new scores replace those that were read.
    present |= _raise_scores(tx, board, _sums(new, board, tx.now), present)
    late = sum(each.event_id not in in_time for each in counts)
    return CountResult(
        standings=[_member_scores(member, ours, present) for member, ours in members],
        counted=len(new),
        repeated=len(counts) - len(new) - late,
        late=late,
    )


def lock(tx: Transaction, board: Board) -> None:
    """Lock a board until the commit; if its scores were computed by another calendar, recompute them."""
    mine = select(_b.timezone).where(_b.board == board.name).with_for_update()
    timezone = tx.execute(mine).scalar_one_or_none()
    if timezone is None:
        # The first transaction of a board. Two at once are possible, so the row is skipped if it exists, and locked by
        # the second read.
        tx.insert_many(ranking_boards, [{"board": board.name, "timezone": board.timezone}], skip_existing=True)
        timezone = tx.execute(mine).scalar_one()
    # Every score depends on the calendar. The recount happens under the lock, so no score of the old
    # calendar is raised afterwards.
    if timezone != board.timezone:
        tx.execute(update(ranking_boards).where(_b.board == board.name).values(timezone=board.timezone))
        _recount(tx, board)


def recount(tx: Transaction, board: Board) -> int:
    """Recompute all scores from the events; return their number."""
    lock(tx, board)
    return _recount(tx, board)


def page(tx: Transaction, board: Board, window: Window, after: str, limit: int) -> list[Score]:
    """Return scores of one window ordered by member, starting after `after`."""
    rows = select(_s.member, _s.score, _s.reached_at).where(
        _s.board == board.name, _s.period == window.period, _s.window_name == window.name, _s.member > after
    )
    return [Score(*row) for row in tx.execute(rows.order_by(_s.member).limit(limit))]


def prune_scores(tx: Transaction, board: Board, period: RankingPeriod) -> int:
    """Delete the earliest window of a period if it is no longer kept; return the number of deleted rows."""
    lock(tx, board)
    ours = (_s.board == board.name, _s.period == period)
    # One window per transaction: the lock of the board must not be held for long. Names of one period sort by time.
    earliest = tx.execute(select(func.min(_s.window_name)).where(*ours)).scalar_one()
    if earliest is None or earliest >= oldest_kept(period, tx.now, board.zone).name:
        return 0
    return tx.execute(delete(ranking_scores).where(*ours, _s.window_name == earliest)).rowcount


def prune_events(tx: Transaction, board: Board) -> int:
    """Delete up to one day of events that are in no window any more; return the number of deleted rows."""
    lock(tx, board)
    earliest = tx.execute(select(func.min(_e.happened_at)).where(_e.board == board.name)).scalar_one()
    # Months are kept the longest. A week may reach into the previous month, but is not kept as long as that one.
    end = oldest_kept(RankingPeriod.MONTHLY, tx.now, board.zone).starts_at
    if earliest is None or earliest >= end:
        return 0
    # One day per transaction, for the same reason.
    until = min(end, earliest + timedelta(days=1))
    return tx.execute(delete(ranking_events).where(_e.board == board.name, _e.happened_at < until)).rowcount


def _windows_of(at: datetime, board: Board, now: datetime) -> Windows | None:
    """Return the windows of a moment; None if it is so old that none can be kept."""
    return windows_at(at, board.zone) if at > now - REACH else None


def _counts_somewhere(windows: Windows | None, now: datetime) -> bool:
    return windows is not None and any(window.kept_until > now for window in windows)


def _known(tx: Transaction, board: Board, ids: Iterable[str]) -> set[str]:
    known: set[str] = set()
    # Databases limit the number of parameters of a statement.
    for some in _chunks(sorted(ids)):
        found = tx.execute(select(_e.event_id).where(_e.board == board.name, _e.event_id.in_(some)))
        known.update(found.scalars())
    return known


def _event_row(board: Board, each: CountedEvent) -> dict[str, object]:
    return {
        "board": board.name,
        "event_id": each.event_id,
        "member": each.member,
        "amount": each.amount,
        "happened_at": each.at,
    }


def _sums(counts: Iterable[CountedEvent], board: Board, now: datetime) -> dict[_Place, _Sum]:
    """Return what these events add to each score."""
    sums: dict[_Place, _Sum] = {}
    for each in counts:
        for window in _windows_of(each.at, board, now) or ():
            if window.kept_until > now:
                sums.setdefault(_place(window, each.member), _Sum(0, each.at)).add(each.amount, each.at)
    return sums


def _raise_scores(
    tx: Transaction, board: Board, sums: Mapping[_Place, _Sum], present: Mapping[_Place, Score]
) -> dict[_Place, Score]:
    """Write and return the scores that grew. The board is locked, so no other transaction changes them."""
    new: list[dict[str, object]] = []
    raised: list[dict[str, object]] = []
    for place, added in sums.items():
        before = present.get(place)
        if before is None:
            new.append(_score_row(board, place, added))
        else:
            # The sum and the latest time do not depend on the order of events.
            added.add(before.score, before.reached_at)
            raised.append(_raise_row(board, place, added))
    tx.insert_many(ranking_scores, new)
    if raised:
        tx.execute(_RAISE, raised)
    return {place: Score(place[2], added.amount, added.latest) for place, added in sums.items()}


_RAISE = (
    update(ranking_scores)
    .where(
        _s.board == bindparam("of_board"),
        _s.period == bindparam("of_period"),
        _s.window_name == bindparam("of_window"),
        _s.member == bindparam("of_member"),
    )
    .values(score=bindparam("new_score"), reached_at=bindparam("new_latest"))
)


def _raise_row(board: Board, place: _Place, added: _Sum) -> dict[str, object]:
    return {
        "of_board": board.name,
        "of_period": place[0],
        "of_window": place[1],
        "of_member": place[2],
        "new_score": added.amount,
        "new_latest": added.latest,
    }


def _score_row(board: Board, place: _Place, added: _Sum) -> dict[str, object]:
    period, window, member = place
    return {
        "board": board.name,
        "period": period,
        "window_name": window,
        "member": member,
        "score": added.amount,
        "reached_at": added.latest,
    }


def _present(tx: Transaction, board: Board, places: Iterable[_Place]) -> dict[_Place, Score]:
    found: dict[_Place, Score] = {}
    columns = select(_s.member, _s.score, _s.reached_at)
    # Window by window, since SQLite uses no index for tuples.
    for (period, window), members in groupby(sorted(places), key=itemgetter(0, 1)):
        of_window = columns.where(_s.board == board.name, _s.period == period, _s.window_name == window)
        for some in _chunks([member for _, _, member in members]):
            rows = tx.execute(of_window.where(_s.member.in_(some)))
            found.update({(period, window, row[0]): Score(*row) for row in rows})
    return found


def _member_scores(member: str, windows: Windows, present: Mapping[_Place, Score]) -> MemberScores:
    day, week, month = (present.get(_place(window, member)) for window in windows)
    return MemberScores(windows, (day, week, month))


def _place(window: Window, member: str) -> _Place:
    return window.period.value, window.name, member


def _recount(tx: Transaction, board: Board) -> int:
    tx.execute(delete(ranking_scores).where(_s.board == board.name))
    events = tx.execute(select(_e.event_id, _e.member, _e.happened_at, _e.amount).where(_e.board == board.name))
    counts = (CountedEvent(event_id=row[0], member=row[1], at=row[2], amount=row[3]) for row in events)
    sums = _sums(counts, board, tx.now)
    for some in _chunks(list(sums.items())):
        tx.insert_many(ranking_scores, [_score_row(board, place, added) for place, added in some])
    return len(sums)


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
