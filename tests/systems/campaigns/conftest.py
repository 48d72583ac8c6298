"""A shop whose entries are worked on, with readers that wait on the server and with ones that look now and then."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tidegate.storage.valkey import Valkey


@pytest.fixture(params=[True, False], ids=["blocking", "looking"])
async def workers(request: pytest.FixtureRequest, tmp_path: Path, embedded: Valkey) -> AsyncGenerator[WorkerHarness]:
    """On SQLite and the embedded server, with each kind of reader."""
    async with worker_harness_at(
        await migrated_file(tmp_path / "works.db"), embedded, blocking=request.param
    ) as opened:
        yield opened
