"""Values come back as they went in, on every server."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, select

from tests.examples import examples
from tidegate.core.errors import InvalidArgument
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.schema import TABLE_OPTIONS, Json, UtcDateTime, exact_text

things = Table(
    "things",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("at", UtcDateTime),
    Column("value", Json),
    Column("name", exact_text(50)),
    **TABLE_OPTIONS,
)


async def _there_and_back(database: Database, **values: Any) -> Any:
    def work(tx: Transaction) -> Any:
        things.create(tx.connection, checkfirst=True)
        tx.execute(things.delete())
        tx.execute(things.insert().values(id=1, **values))
        return tx.execute(select(things)).one()

    return await database.transaction(work)


async def test_a_time_keeps_its_microseconds_and_is_utc(database: Database) -> None:
    at = datetime(2026, 3, 29, 2, 30, 0, 123456, timezone(timedelta(hours=5, minutes=30)))
    row = await _there_and_back(database, at=at)
    assert row.at == at
    assert row.at.tzinfo is UTC


async def test_a_naive_time_is_refused(database: Database) -> None:
    with pytest.raises(InvalidArgument, match="must have a time zone"):
        await _there_and_back(database, at=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_times_are_compared_chronologically(database: Database) -> None:
    early = datetime(2026, 1, 1, tzinfo=UTC)
    row = await _there_and_back(database, at=early)
    assert row is not None

    def later(tx: Transaction) -> bool:
        just_after = (early + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=-9)))
        return tx.execute(select(things.c.id).where(things.c.at < just_after)).one_or_none() is not None

    assert await database.read(later)


async def test_values_that_json_cannot_encode_are_refused(database: Database) -> None:
    with pytest.raises(InvalidArgument, match="must be JSON"):
        await _there_and_back(database, value={"thing": object()})


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(value=_json)
async def test_any_json_value_is_returned_unchanged(database: Database, value: Any) -> None:
    assert (await _there_and_back(database, value={"v": value})).value == {"v": value}
