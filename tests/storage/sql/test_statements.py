"""Statements about many rows at once mean the same on every server, whatever stands in the rows."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tidegate.core.errors import ContractBroken
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql import statements as statements_module
from tidegate.storage.sql.schema import handled_events
from tidegate.storage.sql.statements import Statement, parts

GIVEN = ":given(handler text, event_id text, handled_at moment)"
INSERT = Statement(f"INSERT INTO handled_events (handler, event_id, handled_at) SELECT * FROM {GIVEN}")
FIND = Statement(
    "SELECT handler, event_id FROM handled_events WHERE handled_at >= :since ORDER BY handler, event_id",
    returns=("handler", "event_id"),
)
SINCE = Statement("SELECT count(*) FROM handled_events WHERE handled_at = :at AND handler = :handler")
NUMBERED = Statement(
    "SELECT n, word FROM (SELECT n, word FROM :given(n number, word text)) numbered WHERE n IN :wanted[] ORDER BY n",
    returns=("n", "word"),
)
NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def numbered(tx: Transaction, rows: list[tuple[int, str | None]], wanted: list[int]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in NUMBERED.rows(tx, given=rows, wanted=wanted)]


@settings(
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    rows=st.dictionaries(st.integers(-(2**62), 2**62), st.none() | words, min_size=1, max_size=6),
    others=st.lists(st.integers(-5, 5)),
)
async def test_numbers_and_texts_are_returned_unchanged(
    database: Database, rows: dict[int, str | None], others: list[int]
):
    some = sorted(rows)[::2]

    found = await database.read(numbered, list(rows.items()), [*some, *others])

    assert found == [(number, rows[number]) for number in sorted(rows) if number in {*some, *others}]


async def test_rows_are_inserted_by_one_statement_and_returned_in_order(database: Database):
    east = timezone(timedelta(hours=5, minutes=30))
    rows = [("h", f"event {n} 'quoted' \"twice\" é 漢 \\ % ? :x", NOON + timedelta(seconds=n)) for n in range(300)]
    rows[299] = (*rows[299][:2], rows[299][2].astimezone(east))

    def write(tx: Transaction) -> list[Any]:
        assert INSERT.run(tx, given=rows).rowcount == 300
        return list(FIND.rows(tx, since=NOON + timedelta(seconds=100)))

    found = await database.transaction(write)

    assert [tuple(row) for row in found] == sorted((row[0], row[1]) for row in rows[100:])


async def test_times_are_written_in_the_format_of_sqlalchemy(database: Database):
    async def count(at: datetime) -> int:
        return await database.read(lambda tx: SINCE.run(tx, at=at, handler="h").scalar_one())

    await database.transaction(lambda tx: INSERT.run(tx, given=[("h", "e", NOON)]).rowcount)

    def read(tx: Transaction) -> datetime:
        return tx.execute(handled_events.select()).one().handled_at

    assert await database.read(read) == NOON
    assert await count(NOON) == 1
    assert await count(NOON + timedelta(microseconds=1)) == 0


async def test_an_empty_list_matches_no_rows(database: Database):
    def find(tx: Transaction) -> int:
        return len(NUMBERED.rows(tx, given=[(1, "one")], wanted=[]))

    if database.dialect == "mysql":  # has no words for an empty set
        with pytest.raises(ContractBroken, match="wanted is empty"):
            await database.read(find)
    else:
        assert await database.read(find) == 0


def test_parts_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statements_module, "_MOST_ROWS", 3)
    monkeypatch.setattr(statements_module, "_MOST_CHARACTERS", 10)

    assert [list(part) for part in parts("abcdefg", len)] == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert list(parts(["a" * 9, "b" * 5, "c" * 5, "d" * 99, "e"], len)) == [
        ["a" * 9],
        ["b" * 5, "c" * 5],
        ["d" * 99],
        ["e"],
    ]
    assert list(parts([], len)) == []
