"""`tidegate up`, `work` and `serve` as somebody starts them: in processes of their own."""

import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.test_commands import environment
from tests.processes import WarmProcess, start_warm
from tests.waiting import patience
from tidegate.core.ids import new_id


@dataclass(frozen=True)
class Started:
    """A process that has said how it started."""

    process: WarmProcess
    banner: dict[str, Any]
    log: Path
    """What it writes to standard error."""

    @property
    def url(self) -> str:
        return self.banner["url"]

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> dict[str, Any]:
        """Ask it to stop; how it says that it did. Its exit code is 0."""
        self.process.send_signal(how)
        async with patience():
            out, _ = await self.process.communicate()
        assert self.process.returncode == 0, self.log.read_text()
        return json.loads(out)


@asynccontextmanager
async def started(folder: Path, *arguments: str, **variables: str) -> AsyncGenerator[Started]:
    """`tidegate ARGUMENTS --json`, until it is stopped, or killed at the end of the block."""
    log = folder / f"{arguments[0]}-{new_id()}.log"  # a pipe that nobody reads would make it wait
    with log.open("wb") as file:
        process = await start_warm(
            str(Path(sys.executable).with_name("tidegate")),
            *(*arguments, "--json"),
            stdout=PIPE,
            stderr=file,
            cwd=folder,
            env=environment(folder, TIDEGATE_LOG__FORMAT="json", **variables),
        )
    assert process.stdout is not None
    try:
        async with patience():
            line = await process.stdout.readline()
        assert line, f"it did not start: {log.read_text()}"
        yield Started(process, json.loads(line), log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
