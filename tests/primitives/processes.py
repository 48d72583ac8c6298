"""Real processes for races and crashes; none outlives its test."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.processes import WarmProcess, start_warm

_ANSWER_WITHIN_S = 60


@asynccontextmanager
async def started(script: Path, *arguments: str) -> AsyncGenerator[WarmProcess]:
    """A Python script as a process of its own, killed at the end of the block if it still runs."""
    command = (sys.executable, str(script), *arguments)
    process = await start_warm(*command, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        await kill(process)


async def kill(process: WarmProcess) -> None:
    """As kill -9 does, and see it gone."""
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def said(process: WarmProcess) -> str:
    """The next line it prints."""
    assert process.stdout
    async with asyncio.timeout(_ANSWER_WITHIN_S):
        return (await process.stdout.readline()).decode().strip()


async def output(process: WarmProcess) -> list[str]:
    """All lines it prints until it ends, which it must in good order."""
    async with asyncio.timeout(_ANSWER_WITHIN_S):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().splitlines()
