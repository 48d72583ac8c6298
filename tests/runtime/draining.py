"""A process whose service takes a while to drain: `draining.py asyncio|uvloop drains|hangs`."""

import asyncio
import sys

import uvloop

from tidegate.core.telemetry.logs import configure_logs
from tidegate.runtime.supervisor import Supervisor


class Worker:
    async def run(self, stopping: asyncio.Event) -> None:
        print("working", flush=True)
        await stopping.wait()
        print("stopping", flush=True)
        if sys.argv[2] == "hangs":
            await asyncio.Event().wait()
        print((await asyncio.to_thread(sys.stdin.readline)).strip(), flush=True)


async def main() -> int:
    supervisor = Supervisor()
    supervisor.add("worker", Worker())
    report = await supervisor.run(handle_signals=True)
    print("left in good order" if report.is_clean else "cut off", flush=True)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    configure_logs(level="warning")
    run = uvloop.run if sys.argv[1] == "uvloop" else asyncio.run
    sys.exit(run(main()))
