"""A plain client of a small simulated game: no retries, no cleverness, nothing unpacked unless asked."""

import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy

from tests.simulators.ticks import Ticks
from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, LimitSettings, Tempo, WorldClock, WorldShape

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = WorldShape(subjects=1_000, missing=0, body_bytes=30_000, kept_bytes=8_000, epoch=EPOCH)


@dataclass(frozen=True)
class Got:
    status: int
    headers: CIMultiDictProxy[str]
    raw: bytes

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.raw) if self.headers.get("content-encoding") == "gzip" else self.raw

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, sim: GameSimulator, ticks: Ticks, session: aiohttp.ClientSession) -> None:
        self.sim, self.ticks, self._session = sim, ticks, session

    async def ask(self, method: str, path: str, *, key: str | None = None, **options: Any) -> Got:
        headers = {"X-Api-Key": self.sim.api_key if key is None else key} | options.pop("headers", {})
        async with self._session.request(method, self.sim.url + path, headers=headers, **options) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, *, key: str | None = None, **headers: str) -> Got:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("GET", path, key=key, headers=named)

    async def character(self, subject: int = 1, **headers: str) -> Got:
        return await self.get(f"/v1/characters/{subject}", **headers)

    async def statuses(self, times: int, subject: int = 1) -> list[int]:
        return [(await self.character(subject)).status for _ in range(times)]


@asynccontextmanager
async def simulated(
    *,
    world: WorldShape = SMALL,
    limits: LimitSettings | None = None,
    behaviour: Behaviour | None = None,
    subjects_counted: int = 1_000,
) -> AsyncGenerator[Client]:
    """A simulator of small documents whose time stands still, and a client with its first key."""
    ticks = Ticks()
    config = GameConfig(
        world=world,
        limits=limits or LimitSettings(),
        behaviour=behaviour or Behaviour(hang_s=0, drip_s=0),
        subjects_counted=subjects_counted,
    )
    clock = WorldClock(world.epoch, world.speed, ticks)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        GameSimulator(config, clock) as sim,
        aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
    ):
        # Unasked, it would send a GET again whose connection broke: a second call that nobody decided on.
        session._retry_connection = False  # pyright: ignore[reportPrivateUsage]
        yield Client(sim, ticks, session)


def restless(every_s: float | None) -> WorldShape:
    """A small world in which all characters change equally often."""
    return WorldShape(
        subjects=1_000,
        missing=0,
        body_bytes=30_000,
        kept_bytes=8_000,
        epoch=EPOCH,
        tempi=(Tempo(share=1, every_s=every_s, spread=1),),
    )
