"""`-m tests.runtime.local_process FOLDER OWNER`: hold a lock, print dead processes, stop at the end of input."""

import asyncio
import sys
from pathlib import Path

from tidegate.core.telemetry.logs import configure_logs
from tidegate.runtime.process_deaths import ProcessDeathWatcher


async def main(folder: Path, owner: str) -> None:
    stopping = asyncio.Event()

    async def report(dead: str) -> None:
        print(dead, flush=True)

    watching = asyncio.create_task(ProcessDeathWatcher(folder, owner, report, has_left=lambda: True).run(stopping))
    while not (folder / owner).exists():
        await asyncio.sleep(0)
    print("here", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    stopping.set()
    await watching


if __name__ == "__main__":
    configure_logs(level="warning")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
