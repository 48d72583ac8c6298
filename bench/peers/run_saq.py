"""saq on Redis: no-op jobs drained by one process. Prints jobs per second."""

import asyncio
import logging
import sys
import time
from typing import Any

import uvloop
from saq import Queue, Worker

URL, JOBS = sys.argv[1], int(sys.argv[2])
logging.disable(logging.CRITICAL)
done = 0
finished: asyncio.Event


async def noop(_context: dict[str, Any], *, n: int) -> None:
    global done
    done += 1
    if done == JOBS:
        finished.set()


async def main() -> None:
    global finished
    finished = asyncio.Event()
    queue = Queue.from_url(URL, name="peer-saq")
    await queue.connect()
    for n in range(JOBS):
        await queue.enqueue("noop", n=n)
    worker = Worker(queue, functions=[("noop", noop)], concurrency=100)
    began = time.perf_counter()
    running = asyncio.create_task(worker.start())
    await finished.wait()
    print(JOBS / (time.perf_counter() - began), flush=True)
    running.cancel()


uvloop.run(main())
