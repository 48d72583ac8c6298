"""taskiq: fetch a page, upsert its ten documents, mark the job done; one process.

Prints jobs per second, and CPU seconds per job.

Done as one would without a framework around it: aiohttp with kept connections, and one thread that writes to SQLite,
with the settings that tidegate uses for it. Nothing is promised: no quota, no fence, no follow-ups, no resume.
"""

import asyncio
import json
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

URL, JOBS, UPSTREAM, PATH, AT_ONCE = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
broker = RedisStreamBroker(URL)
writer = ThreadPoolExecutor(1)
database: sqlite3.Connection
session: aiohttp.ClientSession
finished: asyncio.Event
done = 0


def prepare() -> None:
    global database
    database = sqlite3.connect(PATH, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE documents (kind TEXT, id TEXT, body TEXT, changed_at TEXT, PRIMARY KEY (kind, id))")
    database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT, ended_at TEXT)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO jobs VALUES (?, 'ready', NULL)", [(n,) for n in range(JOBS)])
    database.execute("COMMIT")


def write(job: int, items: list[dict[str, str]]) -> None:
    now = str(time.time())
    database.execute("BEGIN IMMEDIATE")
    database.executemany(
        "INSERT INTO documents VALUES ('item', ?, ?, ?) "
        "ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, changed_at = excluded.changed_at "
        "WHERE body <> excluded.body",
        [(item["id"], json.dumps(item), now) for item in items],
    )
    database.execute("UPDATE jobs SET state = 'done', ended_at = ? WHERE id = ?", (now, job))
    database.execute("COMMIT")


@broker.task
async def collect(job: int) -> None:
    global done
    async with session.get(f"{UPSTREAM}/pages/{job}") as answer:
        items = json.loads(await answer.read())
    await asyncio.get_running_loop().run_in_executor(writer, write, job, items)
    done += 1
    if done == JOBS:
        finished.set()


async def main() -> None:
    global finished, session
    finished = asyncio.Event()
    await asyncio.get_running_loop().run_in_executor(writer, prepare)
    broker.is_worker_process = True
    await broker.startup()
    for n in range(JOBS):
        await collect.kiq(n)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        began, cpu = time.perf_counter(), time.process_time()
        receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=AT_ONCE, run_startup=False))
        await finished.wait()
        print(JOBS / (time.perf_counter() - began), (time.process_time() - cpu) / JOBS)
        receiver.cancel()


uvloop.run(main())
