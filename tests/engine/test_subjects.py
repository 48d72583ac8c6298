"""What was collected or is scheduled is listed by subject, on every database."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.engine.conftest import Library
from tidegate.core.errors import InvalidArgument
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.subjects import CollectedSubject, FoundSubjects, SubjectQuery, list_subjects
from tidegate.engine.schedules.firings import collection_schedules
from tidegate.engine.tables import collection_runs
from tidegate.storage.sql import Transaction

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def begin(library: Library, login: str, status: RunState = RunState.COMPLETED, **values: Any) -> int:
    """A run in a state, with these values in its row."""
    number = await library.begin(login)

    def end(tx: Transaction) -> None:
        # Otherwise the next run of the subject would be refused.
        changed = {"status": status, "active_key": None, "created_at": NOON, **values}
        tx.execute(update(collection_runs).where(collection_runs.c.id == number).values(changed))

    await library.parts.database.transaction(end)
    return number


async def schedule(library: Library, login: str, next_at: datetime | None, *, cron: str = "0 3 * * *") -> None:
    row = {
        "source": library.source.name,
        "user_id": login,
        "login": login,
        "options": {},
        "cron": cron,
        "timezone": "UTC",
    }
    row |= {"next_at": next_at, "created_at": NOON}
    await library.parts.database.transaction(lambda tx: tx.execute(insert(collection_schedules).values(row)))


async def listed(library: Library, **wanted: Any) -> FoundSubjects:
    return await library.parts.database.read(list_subjects, SubjectQuery(**wanted))


def names(found: FoundSubjects) -> tuple[list[str], str | None]:
    return [each.id for each in found.subjects], found.next_after


@pytest.mark.every_server
async def test_a_subject_has_its_last_run_its_last_completed_run_and_its_next_due_time(library: Library):
    await begin(library, "ada", documents=5, completed_at=NOON + HOUR)
    last = await begin(library, "ada", RunState.FAILED, documents=2, completed_at=NOON + 2 * HOUR, failed_jobs=3)
    await schedule(library, "ada", NOON + 5 * HOUR)
    await schedule(library, "ada", NOON + 4 * HOUR, cron="0 4 * * *")
    await schedule(library, "ada", None, cron="0 5 * * *")

    [ada] = (await listed(library)).subjects
    assert (ada.source, ada.id, ada.login, ada.runs, ada.documents) == (library.source.name, "ada", "ada", 2, 7)
    assert ada.last_run is not None
    assert (ada.last_run.id, ada.last_run.status, ada.last_run.failed_jobs) == (last, RunState.FAILED, 3)
    assert (ada.last_completed_at, ada.schedules, ada.next_at) == (NOON + HOUR, 3, NOON + 4 * HOUR)


@pytest.mark.every_server
async def test_a_subject_that_is_only_scheduled_is_listed_before_its_first_run(library: Library):
    await schedule(library, "eve", None)
    [eve] = (await listed(library)).subjects
    assert eve == CollectedSubject(
        source=library.source.name,
        id="eve",
        login="eve",
        runs=0,
        documents=0,
        last_run=None,
        last_completed_at=None,
        schedules=1,
        next_at=None,
    )


@pytest.mark.every_server
async def test_pages_have_every_subject_once(library: Library):
    for login in ("zoe", "ada", "kim", "eve", "ada"):
        await begin(library, login)
    await schedule(library, "bob", NOON)
    await schedule(library, "kim", NOON)

    assert names(await listed(library, limit=2)) == (["ada", "bob"], "bob")
    assert names(await listed(library, limit=2, after="bob")) == (["eve", "kim"], "kim")
    assert names(await listed(library, limit=2, after="kim")) == (["zoe"], None)
    assert names(await listed(library, limit=1, after="zoe")) == ([], None)


@pytest.mark.every_server
async def test_subjects_are_found_by_a_part_of_their_name_and_by_source(library: Library):
    await begin(library, "Ada/poems")
    other = await begin(library, "ada_", documents=4)
    await library.parts.database.transaction(
        lambda tx: tx.execute(
            update(collection_runs).where(collection_runs.c.id == other).values(source="other", user_id="ada/poems")
        )
    )
    assert names(await listed(library, search="POEM")) == (["Ada/poems", "ada/poems"], None)
    assert names(await listed(library, search="a_")) == (["ada/poems"], None), "a wildcard stands for itself"
    assert names(await listed(library, source="other")) == (["ada/poems"], None)
    assert names(await listed(library, source="none")) == ([], None)
    with pytest.raises(InvalidArgument, match="printable"):
        await listed(library, search=" ")


@pytest.mark.every_server
async def test_two_sources_with_the_same_subject_are_two_rows_of_one_page(library: Library):
    await begin(library, "ada", documents=1)
    other = await begin(library, "ada", documents=2)
    await begin(library, "zoe")
    await library.parts.database.transaction(
        lambda tx: tx.execute(update(collection_runs).where(collection_runs.c.id == other).values(source="other"))
    )
    found = await listed(library, limit=1)
    assert [(each.source, each.documents) for each in found.subjects] == sorted(
        [("other", 2), (library.source.name, 1)]
    )
    assert found.next_after == "ada"
    [only] = (await listed(library, source=library.source.name, limit=1)).subjects
    assert (only.source, only.runs) == (library.source.name, 1)


@pytest.mark.every_server
async def test_a_search_examines_a_limited_number_of_subjects_and_continues_behind_them(library: Library):
    for login in ("ada", "ada", "bob", "eve", "kim"):
        await begin(library, login)
    await schedule(library, "zoe", NOON)

    async def searched(text: str, after: str | None = None) -> tuple[list[str], str | None]:
        query = SubjectQuery(search=text, after=after)
        return names(await library.parts.database.read(partial(list_subjects, most_examined=2), query))

    assert await searched("kim") == ([], "bob")
    assert await searched("kim", "bob") == (["kim"], "kim")
    assert await searched("zoe") == ([], "bob"), "a scheduled subject behind the examined ones is on a later page"
    assert await searched("zoe", "kim") == (["zoe"], None)
