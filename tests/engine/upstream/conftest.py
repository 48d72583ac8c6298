"""A client with the usual limits."""

from collections.abc import AsyncGenerator

import pytest

from tidegate.core.clock import ManualClock
from tidegate.engine.upstream import UpstreamClient


@pytest.fixture
async def client(clock: ManualClock) -> AsyncGenerator[UpstreamClient]:
    async with UpstreamClient(clock=clock) as opened:
        yield opened
