"""The data of a source comes from one place, on every database."""

import asyncio

import pytest

from tests.collect.rounds import begun
from tidegate.collect.places import OtherPlace, settle_place
from tidegate.database import Database
from tidegate.kernel.errors import InvalidArgument

HERE, THERE = "https://api.example.com", "https://ghe.example.com/api/v3"


async def settle(database: Database, address: str, moved_from: str | None = None) -> bool:
    return await database.transaction(settle_place, "shelves", address, moved_from)


async def test_the_first_place_stays_once_there_are_runs(database: Database):
    assert await settle(database, THERE)
    assert await settle(database, HERE), "nothing is there that could be mixed"
    assert not await settle(database, HERE)
    await begun(database)

    with pytest.raises(OtherPlace, match=f"is from {HERE}, and {THERE} is another place"):
        await settle(database, THERE)
    assert not await settle(database, HERE)
    assert await database.transaction(settle_place, "other", THERE), "another source has a place of its own"


async def test_the_same_place_may_be_written_in_several_ways(database: Database):
    await settle(database, HERE)
    await begun(database)

    assert not await settle(database, "HTTPS://Api.Example.com/")
    with pytest.raises(OtherPlace):
        await settle(database, "http://api.example.com")


async def test_an_upstream_that_moved_takes_its_data_along(database: Database):
    await settle(database, HERE)
    await begun(database)

    with pytest.raises(OtherPlace):
        await settle(database, THERE, "https://elsewhere.example.com")
    assert await settle(database, THERE, f"{HERE}/")
    assert not await settle(database, THERE, HERE), "and may go on saying so"
    with pytest.raises(OtherPlace):
        await settle(database, HERE)


@pytest.mark.race
async def test_of_many_who_come_at_once_one_is_first(database: Database):
    assert sum(await asyncio.gather(*(settle(database, HERE) for _ in range(8)))) == 1


async def test_an_address_that_no_row_could_hold_is_refused(database: Database):
    with pytest.raises(InvalidArgument, match="at most 500"):
        await settle(database, "https://" + "x" * 500)
