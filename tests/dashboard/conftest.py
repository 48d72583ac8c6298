"""One server with a dashboard for each module of tests; each test has users and runs of its own."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.http.serving import Served, served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    async with served(tmp_path_factory.mktemp("dashboard"), users=4, dashboard=True) as started:
        await started.client.until("/v1/runtime", is_at_work)
        yield started


def is_at_work(told: Any) -> bool:
    """Whether somebody leads, and somebody takes jobs."""
    is_known = told["processes"] is not None and told["streams"] is not None  # else an answer came too late
    return (
        is_known
        and any(each["is_leader"] for each in told["processes"])
        and any(each["name"] == "github.jobs" and each["consumers"] for each in told["streams"])
    )
