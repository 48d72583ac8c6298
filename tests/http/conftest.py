"""One server for each module of tests; each test has users and runs of its own, or does not mind those of others."""

import itertools
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.http.serving import Served, served
from tidegate.core.clock import monotonic_ms
from tidegate.engine.reports import gauges
from tidegate.http import operations

_far_apart = itertools.count(int(monotonic_ms()), 60_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("http"), users=14) as started:
        yield started


@pytest.fixture
def figures_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found out is told again for a moment; here that moment has always passed."""
    monkeypatch.setattr(gauges, "monotonic_ms", lambda: next(_far_apart))
    monkeypatch.setattr(operations, "_FRESH_MS", -1.0)
