"""taskiq on Redis Streams: no-op jobs drained by one process. Prints jobs per second."""

import asyncio
import sys
import time

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

URL, JOBS = sys.argv[1], int(sys.argv[2])
broker = RedisStreamBroker(URL)
done = 0
finished: asyncio.Event


@broker.task
async def noop(n: int) -> None:
    global done
    done += 1
    if done == JOBS:
        finished.set()


async def main() -> None:
    global finished
    finished = asyncio.Event()
    broker.is_worker_process = True
    await broker.startup()
    for n in range(JOBS):
        await noop.kiq(n)
    began = time.perf_counter()
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=1000, run_startup=False))
    await finished.wait()
    print(JOBS / (time.perf_counter() - began))
    receiver.cancel()


uvloop.run(main())
