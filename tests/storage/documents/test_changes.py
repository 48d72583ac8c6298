"""What every store tells of changes: enough to bring a copy up to date, whatever the writers' clocks said."""

import asyncio
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.documents.harness import StoreHarness, issue
from tidegate.storage.documents import Listing

HELLO = "repo:octocat/hello"
HOUR = timedelta(hours=1)


async def changes(harness: StoreHarness, owner: str = "octocat") -> dict[datetime, int]:
    return dict(await harness.store.changes("issue", owner))


async def test_each_change_time_has_its_number_of_documents(harness: StoreHarness) -> None:
    first = harness.clock.now()
    await harness.write(*(issue(each) for each in "abcde"))
    assert await changes(harness) == {first: 5}
    harness.clock.advance(HOUR)
    await harness.write(issue("a", title="new"), issue("b"), issue("f"))

    assert await changes(harness) == {first: 4, harness.clock.now(): 2}


async def test_an_empty_store_has_no_changes(harness: StoreHarness) -> None:
    await harness.write(issue("a", owner="hubot"), issue("a", kind="pull"))

    assert await changes(harness) == {}


async def test_a_removed_document_keeps_its_change_time_and_a_returned_one_has_a_new_one(harness: StoreHarness) -> None:
    await harness.write(issue("a", sweep=1), issue("b", sweep=1))
    first = harness.clock.now()
    harness.clock.advance(HOUR)
    await harness.write(issue("b", sweep=2), completed=[Listing("issue", HELLO, 2)])
    assert await changes(harness) == {first: 1}
    harness.clock.advance(HOUR)
    await harness.write(issue("a", sweep=3))

    assert await changes(harness) == {first: 1, harness.clock.now(): 1}


async def test_a_document_that_moves_to_another_owner_leaves_the_first(harness: StoreHarness) -> None:
    await harness.write(issue("a"), issue("b"))
    first = harness.clock.now()
    harness.clock.advance(HOUR)
    await harness.write(issue("a", owner="hubot"))

    assert await changes(harness) == {first: 1}
    assert await changes(harness, "hubot") == {harness.clock.now(): 1}


async def test_a_commit_under_an_earlier_time_is_seen(harness: StoreHarness) -> None:
    """The clock of its process was behind, or it was frozen between taking the time and writing."""
    await harness.write(issue("a"))
    late = harness.clock.now()
    harness.clock.advance(-HOUR)
    await harness.write(issue("b"))

    assert await changes(harness) == {late: 1, harness.clock.now(): 1}


async def test_documents_of_selected_change_times_can_be_read(harness: StoreHarness) -> None:
    moments: list[datetime] = []
    for some in ("ab", "cd", "ef"):
        moments.append(harness.clock.now())
        await harness.write(*(issue(each, sweep=1) for each in some))
        harness.clock.advance(timedelta(milliseconds=1))
    await harness.write(*(issue(each, sweep=2) for each in "bcdef"), completed=[Listing("issue", HELLO, 2)])

    assert await harness.ids(owner="octocat", changed_at=[moments[2], moments[0]]) == ["b", "e", "f"]
    assert await harness.ids(owner="octocat", changed_at=[moments[1]], batch=1) == ["c", "d"]
    assert await harness.ids(owner="octocat", changed_at=[harness.clock.now()], with_gone=True) == ["a"]
    assert await harness.ids(owner="octocat", changed_at=[]) == []
    assert await harness.ids(owner="octocat", changed_at=[moments[0] - HOUR]) == []


async def test_listed_change_times_are_those_that_can_be_read(harness: StoreHarness) -> None:
    """To the last digit that the store keeps."""
    for number in range(50):
        harness.clock.advance(timedelta(microseconds=1_777))
        await harness.write(issue(str(number)))

    told = await changes(harness)

    assert sum(told.values()) == 50
    assert [document.changed_at in told async for document in harness.store.iterate("issue", "octocat")] == [True] * 50
    assert len(await harness.ids(owner="octocat", changed_at=told)) == 50


async def test_concurrent_writers_are_all_listed(harness: StoreHarness) -> None:
    await asyncio.gather(*(harness.write(*(issue(f"{n}-{m}") for m in range(10))) for n in range(8)))

    assert sum((await changes(harness)).values()) == 80


steps = st.tuples(
    st.sampled_from(["write", "complete"]),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xy"), st.sampled_from(["ann", "bob"])), max_size=4),
    st.booleans(),
)
played = 0


@settings(
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(steps=st.lists(steps, min_size=1, max_size=8), hours=st.permutations(range(8)))
async def test_a_copy_stays_equal_by_reading_only_change_times_that_differ(
    harness: StoreHarness, steps: list[tuple[str, list[tuple[str, str, str]], bool]], hours: list[int]
) -> None:
    """Writes under any times, also earlier ones; the copy looks now and then, and is right whenever it has looked."""
    global played  # noqa: PLW0603
    played += 1
    prefix, start = f"{played}:", harness.clock.now()
    copies: dict[str, dict[str, tuple[datetime, str]]] = {f"{prefix}{owner}": {} for owner in ("ann", "bob")}
    for sweep, (what, given_, looks) in enumerate(steps, 1):
        harness.clock.advance(start + hours[sweep - 1] * HOUR - harness.clock.now())
        written = [
            issue(prefix + number, title=title, owner=prefix + owner, resource=prefix, sweep=sweep)
            for number, title, owner in given_
        ]
        await harness.write(*written, completed=[Listing("issue", prefix, sweep)] if what == "complete" else [])
        if looks or sweep == len(steps):
            for owner, copy in copies.items():
                await follow(harness, owner, copy)
                truth = {d.id: (d.changed_at, d.body["title"]) async for d in harness.store.iterate("issue", owner)}
                assert copy == truth


async def follow(harness: StoreHarness, owner: str, copy: dict[str, tuple[datetime, str]]) -> None:
    told = await harness.store.changes("issue", owner)
    mine: dict[datetime, int] = {}
    for at, _ in copy.values():
        mine[at] = mine.get(at, 0) + 1
    differing = {at for at in told.keys() | mine.keys() if told.get(at) != mine.get(at)}
    for number in [number for number, (at, _) in copy.items() if at in differing]:
        del copy[number]
    async for found in harness.store.iterate("issue", owner, changed_at=differing, batch=2):
        copy[found.id] = (found.changed_at, found.body["title"])
