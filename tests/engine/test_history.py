"""What is known of users before a run begins, on every database."""

from functools import partial

import pytest

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tidegate.engine.reports import history
from tidegate.engine.reports.history import ReadResources, RunAverages

NAME = "shelves"


async def test_users_have_their_active_run_last_completed_run_and_documents(library: Library):
    read = library.parts.database.read
    async with library.working():
        first = await library.begin("ada")
        await library.until(first)
        second = await library.begin("ada")
        await library.until(second)
        other = await library.begin("eve")
        await library.until(other)
    waiting = await library.begin("ada")

    active = await read(history.active_runs, NAME, ["ada", "eve", "nobody"])
    last = await read(history.last_completed, NAME, ["ada", "eve", "nobody"])
    marks = await read(history.marks_of, "shelves", ["ada", "eve", "nobody"])

    assert {user: run.id for user, run in active.items()} == {"ada": waiting}
    assert {user: run.id for user, run in last.items()} == {"ada": second, "eve": other}
    assert marks == {"ada": [ReadResources(kind="SHELF", resources=3, credential="librarian")]}
    assert await read(history.active_runs, "another source", ["ada"]) == {}
    assert await read(history.last_completed, "another source", ["ada"]) == {}


@pytest.mark.every_server
async def test_the_typical_cost_is_the_average_of_the_largest_run_of_each_user(
    library: Library, upstream: ShelfUpstream
):
    read = library.parts.database.read
    assert await read(history.typical, NAME) == RunAverages(users=0, calls=0)
    async with library.working():
        await library.until(await library.begin("ada"))
        upstream.shelves["ada-novels"] = 1
        await library.until(await library.begin("ada"))
        await library.until(await library.begin("nobody"))

    assert await read(history.typical, NAME) == RunAverages(users=2, calls=(8 + 1) / 2)
    assert await read(partial(history.typical, most=1), NAME) == RunAverages(users=1, calls=1)
    assert await read(history.typical, "another source") == RunAverages(users=0, calls=0)


@pytest.mark.every_server
async def test_more_users_than_fit_into_one_statement_can_be_queried(library: Library):
    run_id = await library.begin("ada")
    many = [f"user-{n}" for n in range(1_200)] + ["ada"]

    active = await library.parts.database.read(history.active_runs, NAME, many)

    assert [run.id for run in active.values()] == [run_id]
    assert await library.parts.database.read(history.last_completed, NAME, many) == {}
    assert await library.parts.database.read(history.marks_of, "shelves", many) == {}
