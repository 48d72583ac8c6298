"""A worker of the crawl campaign, until it is killed: `python -m chaos.crawl_process SETTINGS`, as JSON."""

import asyncio
import sys
from contextlib import suppress

import msgspec
import uvloop

from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import configure_logs
from tidegate.settings import Settings
from tidegate.systems.crawl.opening import open_crawl

_AGAIN_S = 0.1


async def work(settings: Settings) -> None:
    """Crawl, and lead when elected; retries at the start while a server is unavailable."""
    while True:
        with suppress(Unavailable):
            async with open_crawl(settings) as crawl:
                process = crawl.cell.process()
                print("there", flush=True)
                await process.run(handle_signals=True)
                return
        await asyncio.sleep(_AGAIN_S)


if __name__ == "__main__":
    configure_logs("console", "error")
    uvloop.run(work(Settings(**msgspec.json.decode(sys.argv[1]))))
