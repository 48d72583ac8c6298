"""A rationed upstream that counts for itself, by its own clock, and answers over a socket."""

import asyncio
import json
import time
from typing import Any

from tests.waiting import simulated_delay


class Upstream:
    """Windows of `window_s` that open with their first call; every call beyond `limit` is a violation."""

    def __init__(self, limit: int, window_s: float, latency_s: float) -> None:
        self._limit, self._window_s, self._latency_s = limit, window_s, latency_s
        self._opened: dict[str, float] = {}
        self._used: dict[str, int] = {}
        self.calls = 0
        self.violations = 0
        self.windows = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._answer, "127.0.0.1", 0)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        credential = (await reader.readline()).decode().strip()
        said = self._count(credential)
        await simulated_delay(self._latency_s)
        writer.write(json.dumps(said).encode())
        writer.close()

    def _count(self, credential: str) -> dict[str, int]:
        now = time.time()
        if now >= self._opened.get(credential, 0) + self._window_s:
            self._opened[credential], self._used[credential] = now, 0
            self.windows += 1
        self.calls += 1
        self._used[credential] += 1
        self.violations += self._used[credential] > self._limit
        ends = self._opened[credential] + self._window_s
        return {
            "limit": self._limit,
            "remaining": max(0, self._limit - self._used[credential]),
            "window": int(ends) + 1,
            "resets_in_ms": round((ends - now) * 1000) + 1,
        }


async def call(port: int, credential: str) -> dict[str, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{credential}\n".encode())
    answer = await reader.read()
    writer.close()
    return json.loads(answer)
