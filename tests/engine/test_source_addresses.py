"""The data of a source comes from one place, on every database."""

import asyncio

import pytest

from tests.engine.batches import begun
from tidegate.core.errors import InvalidArgument
from tidegate.engine import runs
from tidegate.engine.source import JobSpec, Subject
from tidegate.engine.source_addresses import SourceAddressConflict, register_source_address
from tidegate.storage.sql import Database

HERE, THERE = "https://api.example.com", "https://ghe.example.com/api/v3"


async def settle(database: Database, address: str, moved_from: str | None = None) -> bool:
    return await database.transaction(register_source_address, "shelves", address, moved_from)


async def test_the_first_address_is_fixed_once_there_are_runs(database: Database):
    assert await settle(database, THERE)
    assert await settle(database, HERE), "nothing is there that could be mixed"
    assert not await settle(database, HERE)
    await begun(database)

    with pytest.raises(SourceAddressConflict, match=f"is from {HERE}, not from {THERE}"):
        await settle(database, THERE)
    assert not await settle(database, HERE)
    assert await database.transaction(register_source_address, "other", THERE), "another source has a place of its own"


async def test_equivalent_spellings_of_an_address_are_equal(database: Database):
    await settle(database, HERE)
    await begun(database)

    assert not await settle(database, "HTTPS://Api.Example.com/")
    with pytest.raises(SourceAddressConflict):
        await settle(database, "http://api.example.com")


async def test_an_upstream_that_moved_keeps_its_data(database: Database):
    await settle(database, HERE)
    await begun(database)

    with pytest.raises(SourceAddressConflict):
        await settle(database, THERE, "https://elsewhere.example.com")
    assert await settle(database, THERE, f"{HERE}/")
    assert not await settle(database, THERE, HERE), "and may go on saying so"
    with pytest.raises(SourceAddressConflict):
        await settle(database, HERE)


async def begin(database: Database, user: str, address: str | None) -> None:
    subject, first = Subject(user_id=user, login=user), [JobSpec(kind="LIST", resource=f"user:{user}")]
    await database.transaction(runs.begin, runs.NewRun("shelves", subject, "pool", "manual", first, address))


@pytest.mark.every_server
async def test_a_process_with_an_outdated_address_starts_no_run(database: Database):
    await settle(database, HERE)
    await settle(database, THERE)

    with pytest.raises(SourceAddressConflict, match=f"is from {THERE}, not from {HERE}"):
        await begin(database, "ada", HERE)
    await begin(database, "ada", f"{THERE}/")
    await begin(database, "ben", None)


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_concurrent_starts_use_one_address(database: Database):
    await settle(database, HERE)

    async def come(number: int) -> bool:
        address = (HERE, THERE)[number % 2]
        try:
            await settle(database, address)
            await begin(database, f"user-{number}", address)
        except SourceAddressConflict:
            return False
        return True

    came = await asyncio.gather(*(come(number) for number in range(8)))

    assert any(came)
    assert len({number % 2 for number, has_begun in enumerate(came) if has_begun}) == 1


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_of_concurrent_registrations_one_is_first(database: Database):
    assert sum(await asyncio.gather(*(settle(database, HERE) for _ in range(8)))) == 1


async def test_an_address_that_is_too_long_is_refused(database: Database):
    with pytest.raises(InvalidArgument, match="at most 500"):
        await settle(database, "https://" + "x" * 500)
