"""One process that makes products: `-m tests.crawl.core.process URL`; its test kills it."""

import asyncio
import sys

from tests.crawl.core.plain import SETTINGS, PlainSite
from tidegate.crawl.processing import RawProcessor
from tidegate.crawl.site import Sites
from tidegate.storage.sql import Database


async def main(url: str) -> None:
    async with await Database.open(url) as database:
        processor = RawProcessor(database, Sites([PlainSite()]), SETTINGS)
        print("working", flush=True)
        await processor.run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
