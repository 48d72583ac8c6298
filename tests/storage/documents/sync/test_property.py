"""Whatever happens to the documents and to syncs, a sync that ends makes the destination equal to the store."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.documents.harness import ALL_STORES, StoreHarness, StoreName, issue, open_harness
from tests.storage.documents.sync.targets import ALL_TARGETS, TargetName, assert_equal, open_target
from tidegate.storage.documents import Listing
from tidegate.storage.documents.sync import synchronizer

IDS = "abcdef"
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
_pages = synchronizer._pages  # pyright: ignore[reportPrivateUsage]

writes = st.tuples(
    st.just("write"),
    st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(["one", "two"])), min_size=1, max_size=5),
    st.booleans(),
)
"""Documents, and whether their list was read to its end, so that the others are gone."""
clocks = st.tuples(st.just("clock"), st.sampled_from([0, 1, 1000, -1000]), st.none())
syncs = st.tuples(st.just("sync"), st.booleans(), st.none())
killed = st.tuples(st.just("kill"), st.integers(0, 4), st.none())
"""A sync that ends before it reads a page with this number."""
histories = st.lists(st.one_of(writes, writes, clocks, syncs, killed), min_size=3, max_size=14)


class Killed(Exception):
    """Stands for the end of the process: nothing after it is done."""


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_MOMENTS_AT_ONCE", 2), ("_READ_AT_ONCE", 2), ("_ROWS_AT_ONCE", 3), ("_FEW", 1)):
        monkeypatch.setattr(synchronizer, name, value)


async def play(store: StoreName, target_name: TargetName, folder: Path, history: list[tuple[str, Any, Any]]) -> None:
    async with open_harness(store, folder) as harness, open_target(target_name, folder) as target:
        sweeps = count(1)
        for what, argument, completes in history:
            match what:
                case "write":
                    await _write(harness, argument, next(sweeps), completes=completes)
                case "clock":
                    harness.clock.advance(timedelta(milliseconds=argument))
                case "sync":
                    await target.sync(harness.store, full=argument)
                    await assert_equal(target, harness)
                case _:
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(synchronizer, "_pages", _until(argument))
                        with suppress(Killed):
                            await target.sync(harness.store)
        await target.sync(harness.store)
        await assert_equal(target, harness)
        assert await target.written(harness.store) == 0


async def _write(harness: StoreHarness, items: list[tuple[str, str]], sweep: int, *, completes: bool) -> None:
    documents = [issue(each, title=title, sweep=sweep) for each, title in items]
    completed = [Listing("issue", "repo:octocat/hello", sweep)] if completes else []
    await harness.write(*documents, completed=completed)


def _until(last: int) -> Any:
    async def pages(*arguments: Any) -> Any:
        number = 0
        async for page in _pages(*arguments):
            if number == last:
                raise Killed
            number += 1
            yield page

    return pages


@pytest.mark.usefixtures("_small_pages")
@pytest.mark.parametrize("target_name", ALL_TARGETS)
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=SLOW,
)
@given(history=histories)
def test_a_sync_makes_any_destination_equal_to_the_store(
    target_name: TargetName, tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any, Any]]
) -> None:
    asyncio.run(play("sqlite", target_name, tmp_path_factory.mktemp("history"), history))


@pytest.mark.usefixtures("_small_pages")
@pytest.mark.parametrize("harness", ALL_STORES)
@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=SLOW,
)
@given(history=histories)
def test_a_sync_of_any_store_makes_the_destination_equal(
    harness: StoreName, tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any, Any]]
) -> None:
    asyncio.run(play(harness, "jsonl", tmp_path_factory.mktemp("history"), history))
