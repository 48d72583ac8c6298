"""Runs are found by a part of their subject's name and by their creation time, on every database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update

from tests.engine.conftest import Library
from tidegate.core.errors import InvalidArgument
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.run_search import RunQuery, find_runs
from tidegate.engine.tables import collection_runs
from tidegate.storage.sql import Transaction

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def begin(library: Library, *logins: str) -> list[int]:
    """A run of each subject, created an hour after the one before."""
    numbers = [await library.begin(login) for login in logins]
    for hours, number in enumerate(numbers):
        await library.parts.database.transaction(created_at, number, NOON + hours * HOUR)
    return numbers


def created_at(tx: Transaction, number: int, at: datetime) -> None:
    tx.execute(update(collection_runs).where(collection_runs.c.id == number).values(created_at=at))


async def found(library: Library, most_examined: int = 1000, **wanted: Any) -> tuple[list[int], int | None]:
    def read(tx: Transaction) -> tuple[list[int], int | None]:
        page = find_runs(tx, RunQuery(**wanted), most_examined=most_examined)
        return [run.id for run in page.runs], page.next_before

    return await library.parts.database.read(read)


@pytest.mark.every_server
async def test_a_part_of_the_subject_finds_runs_regardless_of_case(library: Library):
    ada, eve, adam, dots = await begin(library, "Ada/poems", "eve", "adam", "a.d.a")

    assert await found(library, search="ADA") == ([adam, ada], None)
    assert await found(library, search=" /poem ") == ([ada], None)
    assert await found(library, search="e") == ([eve, ada], None)
    assert await found(library, search="d.a") == ([dots], None)
    assert await found(library, search="nobody") == ([], None)
    assert await found(library) == ([dots, adam, eve, ada], None)


@pytest.mark.every_server
async def test_wildcards_and_escapes_in_a_search_stand_for_themselves(library: Library):
    percent, underscore, slash, backslash, plain = await begin(library, "50%", "a_b", "a/b", "a\\b", "axb")

    assert await found(library, search="%") == ([percent], None)
    assert await found(library, search="_") == ([underscore], None)
    assert await found(library, search="a_b") == ([underscore], None)
    assert await found(library, search="/") == ([slash], None)
    assert await found(library, search="\\") == ([backslash], None)
    assert await found(library, search="a%b") == ([], None)
    assert await found(library, search="'; --") == ([], None)
    assert await found(library, search="x") == ([plain], None)


@pytest.mark.every_server
async def test_a_time_range_has_its_begin_and_not_its_end(library: Library):
    first, second, third = await begin(library, "ada", "eve", "zoe")

    assert await found(library, since=NOON + HOUR) == ([third, second], None)
    assert await found(library, until=NOON + HOUR) == ([first], None)
    assert await found(library, since=NOON + HOUR, until=NOON + 2 * HOUR) == ([second], None)
    assert await found(library, since=NOON, until=NOON + 3 * HOUR, search="e") == ([third, second], None)
    assert await found(library, since=NOON + 3 * HOUR) == ([], None)
    assert await found(library, since=NOON, login="eve", source="shelves") == ([second], None)
    assert await found(library, since=NOON, login="eve", source="attic") == ([], None)


@pytest.mark.every_server
async def test_runs_are_in_the_order_of_their_creation_and_pages_follow_each_other(library: Library):
    one, two, three, four = await begin(library, "ada", "eve", "zoe", "kim")
    # The clock of another process was behind, and two runs have the same time.
    await library.parts.database.transaction(created_at, four, NOON + HOUR / 2)
    await library.parts.database.transaction(created_at, three, NOON + HOUR)

    assert await found(library, since=NOON, limit=2) == ([three, two], two)
    assert await found(library, since=NOON, limit=2, before=two) == ([four, one], None)
    assert await found(library, since=NOON, limit=1, before=three) == ([two], two)
    assert await found(library, since=NOON, before=one) == ([], None)


@pytest.mark.every_server
async def test_a_page_examines_a_bounded_number_of_runs_and_the_next_one_goes_on(library: Library):
    ada, eve, adam, zoe, kim = await begin(library, "ada", "eve", "adam", "zoe", "kim")
    assert await library.orchestrator.cancel(ada)

    assert await found(library, 2, search="ada") == ([], zoe), "nothing among the newest two"
    assert await found(library, 2, search="ada", before=zoe) == ([adam], eve)
    assert await found(library, 2, search="ada", before=eve) == ([ada], None)
    assert await found(library, 5, since=NOON, states=(RunState.CANCELED,)) == ([ada], ada)
    assert await found(library, 5, since=NOON, states=(RunState.CANCELED,), before=ada) == ([], None)
    assert await found(library, 4, search="k", states=(RunState.PLANNING,)) == ([kim], eve)


@pytest.mark.every_server
async def test_a_page_goes_on_after_the_run_at_its_end_was_deleted(library: Library):
    ada, eve, adam = await begin(library, "ada", "eve", "adam")

    def forget(tx: Transaction) -> None:
        tx.execute(delete(collection_runs).where(collection_runs.c.id == eve))

    await library.parts.database.transaction(forget)

    assert await found(library, search="a", before=eve) == ([ada], None)
    assert await found(library, search="a", before=adam + 1) == ([adam, ada], None)
    assert await found(library, search="a", before=ada) == ([], None)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"search": ""}, "search"),
        ({"search": "  "}, "printable"),
        ({"search": "a\x00b"}, "printable"),
        ({"search": "x" * 201}, "200"),
        ({"since": NOON.replace(tzinfo=None)}, "time zone"),
        ({"since": NOON, "until": NOON}, "must be after since"),
        ({"search": "a", "limit": 0}, "limit"),
    ],
)
async def test_a_search_that_means_nothing_is_refused(library: Library, wanted: dict[str, Any], reason: str):
    with pytest.raises(InvalidArgument, match=reason):
        await found(library, **wanted)
