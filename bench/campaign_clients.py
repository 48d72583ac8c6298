"""Connections to Valkey of a whole process (`tidegate up`) that served a hundred campaigns and is quiet then."""

import asyncio
import tempfile
import time

import aiohttp
from redis.asyncio import Redis

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, running
from bench.server import tcp_server

CAMPAIGNS, ENTRIES, IDLE_S = 100, 20, 10
QUIET_S = (30, 72)
START_S = 15
"""Until all services have connected, and the leader has looked for what others left."""
MOST_MORE = 10
"""Connections that the process may keep in its pool."""


async def measure() -> Section:
    """Count clients before, while all campaigns have entries, and twice afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as url:
        settings = {
            "TIDEGATE_DATA_DIR": folder,
            "TIDEGATE_VALKEY_URL": url,
            "TIDEGATE_LOG__LEVEL": "warning",
            "TIDEGATE_CAMPAIGNS__IDLE_TIMEOUT_SECONDS": str(IDLE_S),
        }
        async with (
            running(TIDEGATE, "up", "--port", "0", "--json", settings=settings) as process,
            Redis.from_url(url) as valkey,
            aiohttp.ClientSession(process.said["url"]) as http,
        ):
            names = [f"campaign-{n:03}" for n in range(CAMPAIGNS)]
            await asyncio.sleep(START_S)
            before, most = await _clients(valkey), 0
            for name in names:
                await _open(http, name)
            serving = asyncio.gather(*(_enter(http, name) for name in names))
            while not serving.done():
                most = max(most, await _clients(valkey))
                await asyncio.sleep(0.05)
            await serving
            await _until_decided(http, names)
            ended, after = time.monotonic(), dict[int, int]()
            for quiet_s in QUIET_S:
                await asyncio.sleep(ended + quiet_s - time.monotonic())
                after[quiet_s] = await _clients(valkey)
    least, last = before + MOST_MORE, after[QUIET_S[-1]]
    return Section(
        "Campaign connections",
        [
            Figure("clients of Valkey before", str(before)),
            Figure(f"most while each of {CAMPAIGNS} campaigns decides {ENTRIES} entries", str(most)),
            Figure(f"{QUIET_S[0]} s after the last decision", str(after[QUIET_S[0]])),
            Figure(f"{QUIET_S[-1]} s after the last decision", str(last), f"≤ {least}", last <= least),
        ],
        f"`tidegate up` with SQLite; a campaign without entries for {IDLE_S} s has no consumers. The count includes "
        "the connection of this program.",
    )


async def _open(http: aiohttp.ClientSession, name: str) -> None:
    await _post(http, "/v1/campaigns", {"id": name, "kind": "FIRST_COME", "total_count": 1000})
    await _post(http, f"/v1/campaigns/{name}/start", None)


async def _enter(http: aiohttp.ClientSession, name: str) -> None:
    for n in range(ENTRIES):
        await _post(http, f"/v1/campaigns/{name}/entries", {"user": f"user-{n}"})


async def _until_decided(http: aiohttp.ClientSession, names: list[str]) -> None:
    for name in names:
        while True:
            async with http.get(f"/v1/campaigns/{name}/entries", params={"limit": ENTRIES}) as answer:
                if len((await answer.json())["entries"]) == ENTRIES:
                    break
            await asyncio.sleep(0.1)


async def _post(http: aiohttp.ClientSession, path: str, body: object) -> None:
    async with http.post(path, json=body) as answer:
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")


async def _clients(valkey: Redis) -> int:
    return int((await valkey.info("clients"))["connected_clients"])
