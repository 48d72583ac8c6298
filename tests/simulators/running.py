"""A simulator in a process of its own."""

import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.processes import WarmProcess, start_warm


@asynccontextmanager
async def running(*arguments: str) -> AsyncGenerator[tuple[WarmProcess, dict[str, Any]]]:
    """The process, and what it said first."""
    process = await start_warm(sys.executable, *arguments, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        yield process, json.loads(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
