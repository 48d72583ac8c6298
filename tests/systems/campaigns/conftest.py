"""A shop whose entries are worked on, with readers that wait on the server and with ones that look now and then."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_file
from tests.systems.campaigns.working import Works, works_at
from tidegate.storage.valkey import Valkey


@pytest.fixture(params=[True, False], ids=["blocking", "looking"])
async def works(request: pytest.FixtureRequest, tmp_path: Path, embedded: Valkey) -> AsyncGenerator[Works]:
    """On SQLite and the embedded server, with each kind of reader."""
    async with works_at(await migrated_file(tmp_path / "works.db"), embedded, blocking=request.param) as opened:
        yield opened
