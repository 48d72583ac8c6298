"""One server for each module of tests; each test has users and runs of its own, or does not mind those of others."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.http.serving import Served, served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("http"), users=13) as started:
        yield started
