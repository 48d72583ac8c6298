"""Joins and places of a waiting room over HTTP, compared with the same routes written by hand.

Each has one process and 120,000 visitors in line. The requests of both are sent by the same client, in turn. Those to
Tidegate carry signed passes; the peer trusts the name in the request.
"""

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from redis.asyncio import Redis

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, running
from bench.request_load import RequestLoad, Speed, measure_speed, post, write_requests
from bench.server import tcp_server
from tidegate.connections import open_context
from tidegate.settings import Settings
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.system import open_waiting_rooms

WAITING, VISITORS, JOINS = 120_000, 5_000, 200_000
LINES, FOR_S, TURNS = 64, 3.0, 3
TARGET, PLACES = 2.0, 10_000
ROOM, PEER = "sale", "naive FastAPI and redis.asyncio"
_PEER_PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"
_PEER = Path(__file__).parent / "peers" / "run_fastapi_rooms.py"


class Side(msgspec.Struct, frozen=True):
    """One of the two servers."""

    name: str
    port: int
    pid: int
    requests: dict[str, list[str]]
    """Files with the joins of each turn, and with the places."""


async def measure() -> Section:
    """Measure joins and places of both in turn, so that all meet the same moments of the machine."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as url:
        async with AsyncExitStack() as stack:
            sides = [await _ours(stack, Path(folder), url), await _peer(stack, Path(folder), url)]
            best: dict[tuple[str, str], Speed] = {}
            for turn in range(TURNS):
                for what in ("joins", "places"):
                    for side in sides:
                        speed = await _speed(side, what, turn)
                        key = what, side.name
                        if key not in best or best[key].per_second < speed.per_second:
                            best[key] = speed
    return _section(best)


async def _ours(stack: AsyncExitStack, folder: Path, url: str) -> Side:
    settings = Settings(data_dir=folder, valkey_url=url)
    async with open_context(settings) as parts:
        rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
        await rooms.create(ROOM, RoomPlan(capacity=0))
        room = await rooms.open(ROOM)
        tokens: list[str] = []
        for start in range(0, WAITING, 1_000):
            found = await asyncio.gather(*(room.join(f"visitor-{n}") for n in range(start, start + 1_000)))
            tokens += [each.token or "" for each in found[: max(0, VISITORS - len(tokens))]]
    environment = {
        "TIDEGATE_DATA_DIR": str(folder),
        "TIDEGATE_VALKEY_URL": url,
        "TIDEGATE_LOG__LEVEL": "warning",
    }
    server = await stack.enter_async_context(running(TIDEGATE, "serve", "--port", "0", "--json", settings=environment))
    joins = [[_post(f"/v1/rooms/{ROOM}/entries", f"turn-{turn}-{n}") for n in range(JOINS)] for turn in range(TURNS)]
    places = [
        f"GET /v1/rooms/{ROOM}/place HTTP/1.1\r\nHost: 127.0.0.1\r\nTidegate-Pass: {each}\r\n\r\n" for each in tokens
    ]
    port = int(server.said["url"].rpartition(":")[2])
    return Side("tidegate", port, server.pid, _written(folder, "ours", joins, [each.encode() for each in places]))


async def _peer(stack: AsyncExitStack, folder: Path, url: str) -> Side:
    async with Redis.from_url(url) as server:
        for start in range(0, WAITING, 1_000):
            await server.zadd(f"line:{ROOM}", {f"visitor-{n}": n for n in range(start, start + 1_000)})
    peer = await stack.enter_async_context(running(str(_PEER_PYTHON), str(_PEER), url))
    joins = [[_post(f"/rooms/{ROOM}/entries", f"turn-{turn}-{n}") for n in range(JOINS)] for turn in range(TURNS)]
    places = [
        f"GET /rooms/{ROOM}/place/visitor-{n} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for n in range(VISITORS)
    ]
    return Side(PEER, peer.said["port"], peer.pid, _written(folder, "peer", joins, places))


def _post(path: str, user: str) -> bytes:
    return post(path, b'{"user":"%b"}' % user.encode())


def _written(folder: Path, name: str, joins: list[list[bytes]], places: list[bytes]) -> dict[str, list[str]]:
    return {
        "joins": [write_requests(folder / f"{name}-joins-{n}.msgpack", each) for n, each in enumerate(joins)],
        "places": [write_requests(folder / f"{name}-places.msgpack", places)],
    }


async def _speed(side: Side, what: str, turn: int) -> Speed:
    files = side.requests[what]
    load = RequestLoad(
        port=side.port, file=files[turn % len(files)], lines=LINES, for_s=FOR_S, repeats=what == "places"
    )
    return await measure_speed(load, side.pid)


def _section(best: dict[tuple[str, str], Speed]) -> Section:
    figures: list[Figure] = []
    for what in ("joins", "places"):
        ours, peer = best[what, "tidegate"], best[what, PEER]
        ratio = ours.per_second / peer.per_second
        figures += [Figure(f"tidegate: {what}", ours.text()), Figure(f"{PEER}: {what}", peer.text())]
        figures.append(Figure(f"{what}: tidegate / peer", f"{ratio:.2f}x", f"≥ {TARGET:.0f}x", ratio >= TARGET))
    rate = best["places", "tidegate"].per_second
    figures.append(Figure("places per second", f"{rate:,.0f}", f"≥ {PLACES:,}", rate >= PLACES))
    return Section(
        "Room requests",
        figures,
        f"{WAITING:,} visitors in line, {LINES} connections, one process each, the best of {TURNS} turns. The peer "
        "checks no pass and records no sign of life.",
    )
