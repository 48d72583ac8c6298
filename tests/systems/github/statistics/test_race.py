"""Computations at the same time: of many users, of one user, and while documents pass from one to another."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime

import pytest

from tests.systems.github.statistics import world as w
from tests.systems.github.statistics.world import ACCOUNTS, USERS, Repository, World, days_ago, run_of
from tests.systems.github.statistics.wrapped import Wrapped
from tidegate.storage.documents import DocumentStore, StoredDocument
from tidegate.systems.github.statistics import Statistics, item_store, summary
from tidegate.systems.github.statistics.facts import fact_of
from tidegate.systems.github.statistics.item_store import ComputationReplaced, Recount


def busy_repository(number: int, owner: str) -> Repository:
    found = Repository(id=number, owner=owner, name=f"r{number}", stars=number)
    for n in range(12):
        author = random.Random(number * 100 + n).choice(sorted(ACCOUNTS))
        found.bodies["commit", f"{number}:c{n}"] = w.commit(author, days_ago(n))
        found.bodies["pull_request", f"{number}:p{n}"] = w.pull(author, days_ago(n + 3), days_ago(n), merged=n % 2 == 0)
    return found


@pytest.mark.full
@pytest.mark.every_server
async def test_concurrent_computations_of_many_users_give_the_sums_of_sequential_ones(world: World):
    repositories = [busy_repository(n, f"user{n % 12}") for n in range(24)]
    for found in repositories:
        ACCOUNTS.setdefault(found.owner, 1000 + int(found.owner.removeprefix("user")))
        await world.write_repository(found)
    users = sorted({found.owner for found in repositories})

    # Two processes, as far as the database can tell.
    twins = (world.statistics, Statistics(world.harness.database, world.harness.store))
    await asyncio.gather(*(twins[n % 2].finalize(run_of(login)) for n, login in enumerate(users)))

    world.counted = set(users)
    await world.assert_right()


@pytest.mark.every_server
async def test_concurrent_computations_of_one_user_end_with_the_right_values(world: World):
    for login in USERS:
        await world.write_profile(login)
    await world.write_repository(busy_repository(1, "ann"))

    await asyncio.gather(*(world.statistics.finalize(run_of("ann", n)) for n in range(1, 5)))

    world.counted = {"ann"}
    await world.assert_right()
    assert (await world.of("ann")).run_id == 4


@pytest.mark.full
@pytest.mark.every_server
async def test_documents_that_change_owners_repeatedly_are_counted_once(world: World):
    """Everybody is computed again and again while repositories change hands."""
    repositories = [busy_repository(n, USERS[n % 3]) for n in range(3)]
    for login in USERS:
        await world.write_profile(login)

    async def change_hands() -> None:
        for turn in range(4):
            for n, found in enumerate(repositories):
                found.owner = USERS[(n + turn) % 3]
                await world.write_repository(found)

    async def compute(login: str) -> None:
        for _ in range(4):
            await world.statistics.finalize(run_of(login))

    await asyncio.gather(change_hands(), *map(compute, USERS))
    await asyncio.gather(*(world.statistics.finalize(run_of(login)) for login in USERS))

    world.counted = set(USERS)
    await world.assert_right()


@pytest.mark.every_server
async def test_a_computation_that_was_frozen_writes_nothing_when_it_resumes(world: World):
    """It read the documents before a later computation read newer ones."""
    await world.write_profile("ann")
    await world.write_repository(busy_repository(1, "ann"))
    database, store = world.harness.database, world.harness.store
    frozen = await database.transaction(item_store.begin, "ann", "ann")
    old = [document async for document in store.iterate("commit", "ann")]
    await world.relist(Repository(id=1, owner="ann", name="r1"), "commit")
    await world.finalize("ann")

    with pytest.raises(ComputationReplaced):
        await database.transaction(item_store.write, frozen, "commit", [counted(document) for document in old])
    with pytest.raises(ComputationReplaced):
        await database.transaction(item_store.sweep, frozen, "commit", None)
    with pytest.raises(ComputationReplaced):
        await database.transaction(summary.conclude, frozen, 9)
    await world.assert_right()


@pytest.mark.every_server
async def test_a_computation_that_read_a_document_before_it_changed_owner_does_not_claim_it(world: World):
    moved = busy_repository(1, "ann")
    for login in USERS:
        await world.write_profile(login)
    await world.write_repository(moved)
    database, store = world.harness.database, world.harness.store
    slow = await database.transaction(item_store.begin, "ann", "ann")
    old = [document async for document in store.iterate("commit", "ann")]
    moved.owner = "bob"
    await world.write_repository(moved)
    await world.finalize("bob")

    recount = Recount(database, Remembering(store, old), slow, full=False)
    await recount.run()  # reads what was there before, and learns by the other's claim that it passed on
    await database.transaction(summary.conclude, slow, 9)

    world.counted = {"ann", "bob"}
    await world.assert_right()


async def test_a_renewed_claim_is_not_taken(small_world: World):
    """Whose the document is was looked up when the claim was an older one."""
    await small_world.write_repository(busy_repository(1, "bob"))
    database, store = small_world.harness.database, small_world.harness.store
    mine = [counted(document) async for document in store.iterate("commit", "bob")]
    await small_world.finalize("bob")
    held = await database.transaction(item_store.begin, "ann", "ann")
    claims = await database.transaction(item_store.write, held, "commit", mine)
    await small_world.statistics.recompute("bob")

    renewed = await database.transaction(item_store.write, held, "commit", mine, claims)

    assert {claim.owner for claim in renewed} == {"bob"}
    assert len(renewed) == len(claims) == len(mine)
    await small_world.assert_owned("bob")
    assert await database.transaction(item_store.write, held, "commit", mine, renewed) == []


def counted(document: StoredDocument) -> item_store.CountedItem:
    fact = fact_of(document)
    assert fact is not None
    return item_store.CountedItem.of(document, fact)


class Remembering(Wrapped):
    """A store whose first look at commits is an old one."""

    def __init__(self, store: DocumentStore, old: list[StoredDocument]) -> None:
        super().__init__(store)
        self._old = old

    async def changes(self, kind: str, owner: str) -> Mapping[datetime, int]:
        if kind != "commit":
            return await super().changes(kind, owner)
        return Counter(document.changed_at for document in self._old)

    async def iterate(
        self,
        kind: str,
        owner: str | None = None,
        *,
        with_gone: bool = False,
        changed_at: Collection[datetime] | None = None,
        batch: int = 500,
    ) -> AsyncIterator[StoredDocument]:
        if kind == "commit" and self._old:
            old, self._old = self._old, []
            for document in old:
                yield document
            return
        async for document in super().iterate(kind, owner, with_gone=with_gone, changed_at=changed_at, batch=batch):
            yield document
