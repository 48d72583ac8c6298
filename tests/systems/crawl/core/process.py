"""One process that makes products: `-m tests.systems.crawl.core.process URL`; its test kills it."""

import asyncio
import sys

from tests.systems.crawl.core.harness import SETTINGS, PlainSite
from tidegate.storage.sql import Database
from tidegate.systems.crawl.processing import RawProcessor
from tidegate.systems.crawl.site import Sites


async def main(url: str) -> None:
    async with await Database.open(url) as database:
        processor = RawProcessor(database, Sites([PlainSite()]), SETTINGS)
        print("working", flush=True)
        await processor.run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
