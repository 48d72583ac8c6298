"""A million visitors in one line: rate of joins, time to read a position, and memory per visitor.

Joins go in batches of script calls, as processes that serve many people send them.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import Figure, Section
from bench.server import tcp_server
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import migrate
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import PassSigner, RoomPlan, WaitingRoom, WaitingRooms, scripts

PEOPLE, BATCH = 1_000_000, 500
LOOKS = 5_000
JOINS_PER_S, POSITION_MS, BYTES = 20_000, 2.0, 120


async def measure() -> Section:
    with tcp_server() as url, tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with connected(url) as valkey, await Database.open(f"sqlite:///{Path(folder) / 'bench.db'}") as database:
            await migrate(database)
            rooms = WaitingRooms(valkey, database, _signer)
            await rooms.create("bench", RoomPlan(capacity=0))
            room = await rooms.open("bench")
            empty = await _memory(valkey)
            busy_s, wall_s = await _join_all(room, valkey, url)
            per_head = (await _memory(valkey) - empty) / PEOPLE
            looks_ms = await _look(room)
            admit_ms = await _admit(room, rooms)
    rate, whole_rate = PEOPLE / busy_s, PEOPLE / wall_s
    p99 = looks_ms[int(len(looks_ms) * 0.99)]
    figures = [
        Figure(
            f"join, {PEOPLE:,} visitors, by the server's CPU time",
            f"{rate:,.0f}/s",
            f"≥ {JOINS_PER_S:,}/s",
            rate >= JOINS_PER_S,
        ),
        Figure("the same from end to end, on one connection", f"{whole_rate:,.0f}/s"),
        Figure("position among them, median", f"{looks_ms[len(looks_ms) // 2]:.2f} ms"),
        Figure("position among them, p99", f"{p99:.2f} ms", f"≤ {POSITION_MS:.0f} ms", p99 <= POSITION_MS),
        Figure(
            "memory per visitor in line, everything included",
            f"{per_head:.0f} bytes",
            f"≤ {BYTES} bytes",
            per_head <= BYTES,
        ),
        Figure("admit 100: script, transaction on SQLite, script", f"{admit_ms:.1f} ms"),
    ]
    return Section("Waiting room", figures, "Names of 12 characters; append-only file as embedded.")


async def _signer() -> PassSigner:
    return PassSigner([b"of no importance for the figures"])


async def _join_all(room: WaitingRoom, valkey: Valkey, url: str) -> tuple[float, float]:
    """Seconds of the server's CPU, and seconds from end to end.

    The calls are written as they go over the wire: a client that builds them costs several times what the server does.
    """
    await room.join(_name(0))  # the server knows the script from here on
    # There is no leader here that reserves more numbers when half of the first are used.
    await valkey.execute("HSET", room.line.keys["book"], "reserved", 2 * PEOPLE)
    call = scripts.join.bind(attempts=[(_name(0), "")], now_ms=None, **room.line.keys).by_sha()
    head, tail = _written(call).split(_name(0).encode())
    host, _, port = url.removeprefix("redis://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    writer.write(head + _name(0).encode() + tail)
    lines_each = (await reader.read(1000)).count(b"\n")
    before, began = await _cpu_s(valkey), time.perf_counter()
    for start in range(1, PEOPLE, BATCH):
        names = range(start, min(start + BATCH, PEOPLE))
        writer.write(b"".join(head + _name(n).encode() + tail for n in names))
        lines = lines_each * len(names)
        while lines:
            lines -= (await reader.read(1_000_000)).count(b"\n")
    writer.close()
    assert (await room.counts()).waiting == PEOPLE
    return await _cpu_s(valkey) - before, time.perf_counter() - began


def _written(command: tuple[Any, ...]) -> bytes:
    parts = [str(each).encode() for each in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in parts)


async def _look(room: WaitingRoom) -> list[float]:
    """Milliseconds of each look, sorted; one after the other."""
    found: list[float] = []
    draw = random.Random(1)
    for _ in range(LOOKS):
        began = time.perf_counter()
        await room.line.standing(_name(draw.randrange(PEOPLE)))
        found.append((time.perf_counter() - began) * 1000)
    return sorted(found)


async def _admit(room: WaitingRoom, rooms: WaitingRooms) -> float:
    await rooms.replace_plan(room.name, RoomPlan(capacity=1000))
    began = time.perf_counter()
    for _ in range(10):
        await room.admitter.admit()
    return (time.perf_counter() - began) * 100


def _name(number: int) -> str:
    return f"u{number:011}"


async def _cpu_s(valkey: Valkey) -> float:
    facts: dict[str, Any] = await valkey.execute("INFO", "cpu")
    return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])


async def _memory(valkey: Valkey) -> int:
    facts: dict[str, Any] = await valkey.execute("INFO", "memory")
    return int(facts["used_memory"])
