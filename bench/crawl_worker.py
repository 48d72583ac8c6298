"""A Tidegate process that crawls a marketplace once, and reports when all products are stored.

python -m bench.crawl_worker FILE (the plan, as JSON); says which process the Valkey server is, and `done` in the end.
A process that does not begin the crawl works until it is asked to stop.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import uvloop

from bench.crawl import Given
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine.lifecycle import ACTIVE_RUNS, RunState
from tidegate.settings import Settings
from tidegate.systems.crawl.opening import OpenCrawl, open_crawl
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate.systems.crawl.targets import MOST_PAGES, CrawlOptions

_PLENTY = 10**6


def settings_for(given: Given) -> Settings:
    """No delay is configured; identities may call without pauses, one call at a time each."""
    crawl = CrawlSettings(delay=timedelta(0), per_minute=_PLENTY)
    folder, url = Path(given.folder), given.database
    return Settings(data_dir=folder, database_url=url, auto_migrate=True, crawl=crawl)


async def crawl_all(crawl: OpenCrawl, given: Given) -> None:
    """Until the run has ended and every product is there."""
    options = CrawlOptions(url=given.url, keywords=given.keywords, pages=MOST_PAGES)
    run_id = await crawl.crawls.begin("bench", options)
    async with crawl.cell.change_feed.watch([run_id]) as watch:
        while (run := await crawl.cell.orchestrator.show(run_id)).status in ACTIVE_RUNS:
            await watch.wait(within_s=0.05)
    products = await crawl.products.count(is_gone=False)
    if run.status != RunState.COMPLETED or run.failed_jobs or products != given.products:
        raise RuntimeError(f"{products} products of {given.products}: {run}")


async def main(given: Given) -> None:
    async with open_crawl(settings_for(given)) as crawl:
        if given.begins:
            for name, headers in given.identities.items():
                await crawl.identities.add(name, headers)
        about = await crawl.cell.parts.valkey.execute("INFO", "server")
        process = crawl.cell.process()
        running = asyncio.create_task(process.run())
        print(msgspec.json.encode({"valkey": about["process_id"]}).decode(), flush=True)
        if given.begins:
            await crawl_all(crawl, given)
            print("done", flush=True)
        await running


if __name__ == "__main__":
    configure_logs("console", "warning")
    uvloop.run(main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Given)))
