"""The moments of a store: two stores with equal moments have the same documents, whatever the writers' clocks said."""

import asyncio
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from tests.storage.documents.harness import StoreHarness, issue, open_harness
from tidegate.storage.documents import ChangeDigest, Listing

HELLO = "repo:octocat/hello"
HOUR = timedelta(hours=1)


async def moments(harness: StoreHarness) -> list[ChangeDigest]:
    return list(await harness.store.moments("issue"))


async def recomputed(harness: StoreHarness) -> list[ChangeDigest]:
    """What the documents themselves say."""
    groups: defaultdict[object, list[int]] = defaultdict(list)
    async for document in harness.store.iterate("issue", with_gone=True):
        groups[document.changed_at].append(document.fingerprint)
    return sorted((ChangeDigest(at, len(each), sum(each)) for at, each in groups.items()), key=lambda each: each.at)  # pyright: ignore[reportArgumentType]


async def test_each_change_time_counts_the_changed_documents_of_all_owners(harness: StoreHarness) -> None:
    first = harness.clock.now()
    await harness.write(issue("a"), issue("b"), issue("c", owner="hubot"), issue("p", kind="pull"))
    harness.clock.advance(HOUR)
    await harness.write(issue("a", title="new"), issue("b"))

    found = await moments(harness)
    assert [(each.at, each.documents) for each in found] == [(first, 2), (harness.clock.now(), 1)]
    assert found == await recomputed(harness)


async def test_a_page_continues_after_a_change_time(harness: StoreHarness) -> None:
    for number in range(5):
        await harness.write(issue(str(number)))
        harness.clock.advance(HOUR)
    everything = await moments(harness)

    assert list(await harness.store.moments("issue", limit=2)) == everything[:2]
    assert list(await harness.store.moments("issue", after=everything[1].at, limit=2)) == everything[2:4]
    assert list(await harness.store.moments("issue", after=everything[4].at)) == []


async def test_a_change_under_the_same_time_changes_the_fingerprint(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), issue("b", sweep=1))
    states = [await moments(harness)]
    await harness.write(issue("a", title="new", sweep=1))
    states.append(await moments(harness))
    await harness.write(issue("b", sweep=2), completed=[Listing("issue", HELLO, 2)])  # a is gone
    states.append(await moments(harness))
    await harness.write(issue("a", title="new", sweep=3), completed=[Listing("issue", HELLO, 3)])  # b, and not a
    states.append(await moments(harness))

    assert [[each.documents for each in state] for state in states] == [[2]] * 4
    assert len({state[0].fingerprint for state in states}) == 4
    assert states[-1] == await recomputed(harness)


async def test_changes_are_read_in_order_for_all_owners(harness: StoreHarness) -> None:
    times = [harness.clock.now() + number * HOUR for number in range(4)]
    await harness.write(issue("z", sweep=1), issue("a", owner="hubot", sweep=1))
    for number in range(1, 4):
        harness.clock.advance(HOUR)
        await harness.write(*(issue(f"{each}{number}", sweep=1) for each in "cb"))
    await harness.write(issue("c2", title="new", sweep=2))

    async def ids(first: int, last: int, batch: int) -> list[str]:
        found = harness.store.iterate_changes("issue", times[first], times[last], batch=batch)
        return [document.id async for document in found]

    for batch in (1, 2, 3, 100):
        assert await ids(0, 3, batch) == ["a", "z", "b1", "c1", "b2", "b3", "c2", "c3"]
        assert await ids(1, 2, batch) == ["b1", "c1", "b2"]
    await harness.write(issue("b3", sweep=2), completed=[Listing("issue", HELLO, 2)])
    assert len(await ids(3, 3, 2)) == 8  # those that are gone, too


async def test_change_times_stay_correct_during_concurrent_writes(harness: StoreHarness) -> None:
    async def write(number: int) -> None:
        await harness.write(*(issue(str(each), title=str(number)) for each in range(number % 7, 20)))

    await asyncio.gather(*(write(number) for number in range(20)))

    assert await moments(harness) == await recomputed(harness)


async def test_a_document_stored_before_fingerprints_existed_gets_one(tmp_path: Path) -> None:
    async with open_harness("mongo", tmp_path) as harness:
        await harness.write(issue("a", sweep=1), issue("b", sweep=1))
        assert harness.mongo_url is not None
        async with AsyncMongoClient[Any](harness.mongo_url) as client:
            stored = client.get_default_database().get_collection("documents")
            await stored.update_many({}, {"$unset": {"fingerprint": ""}})
        assert [document.fingerprint async for document in harness.store.iterate("issue")] == [1, 1]
        assert await moments(harness) == await recomputed(harness)
        harness.clock.advance(HOUR)
        await harness.write(issue("b", sweep=2), completed=[Listing("issue", HELLO, 2)])  # a is gone
        assert await moments(harness) == await recomputed(harness)
