"""Browsers that have the dashboard open, in a process of their own: `-m bench.browsers PORT COUNT`.

Each has one stream of events, as a tab has. It prints one line when each has received every topic; after a line on its
input, how many events came, and how many bytes.
"""

import asyncio
import sys

import aiohttp
import msgspec
import uvloop

TOPICS = ("overview", "quotas", "runtime", "history")


class Seen(msgspec.Struct):
    """What all of them saw together."""

    events: int = 0
    bytes: int = 0


async def browse(session: aiohttp.ClientSession, url: str, seen: Seen, on_all: asyncio.Semaphore) -> None:
    """One of them, until it is canceled."""
    missing = set(TOPICS)
    async with session.get(url) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            seen.bytes += len(line)
            if line.startswith(b"event: "):
                seen.events += 1
                if missing:
                    missing.discard(line[7:].strip().decode())
                    if not missing:
                        on_all.release()


async def main(port: int, count: int) -> None:
    url = f"http://127.0.0.1:{port}/v1/live?{'&'.join(f'topic={topic}' for topic in TOPICS)}"
    seen, on_all = Seen(), asyncio.Semaphore(0)
    connector, patient = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=patient, read_bufsize=2**20) as session:
        browsers = [asyncio.create_task(browse(session, url, seen, on_all)) for _ in range(count)]
        for _ in browsers:
            await on_all.acquire()
        print("{}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for browser in browsers:
            browser.cancel()
    print(msgspec.json.encode(seen).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
