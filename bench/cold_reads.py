"""Reads of subjects that were never read before: each needs a read of the server and of SQL, a lock, and an event.

One process answers and none refreshes, so that every read is cold. At full speed, and at a rate beside processes that
leave it little of the machine.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, percentile, running
from bench.read_load import Load, Seen
from bench.server import tcp_server

SUBJECTS = 1_000_000
LINES, FOR_S = 128, 5.0
TARGET = 5_000
STARVED_RATE, SPINNERS = 350.0, 8
OURS = "/v1/snapshots/character/"
_SPIN = "while True: pass"


async def measure() -> Section:
    """First as fast as it goes, then at a rate on a starved machine."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as valkey_url:
        settings = {
            "TIDEGATE_DATA_DIR": folder,
            "TIDEGATE_VALKEY_URL": valkey_url,
            "TIDEGATE_LOG__LEVEL": "warning",
            "TIDEGATE_SNAPSHOTS__GAME__URL": "http://127.0.0.1:9",  # no call is made
        }
        async with running(TIDEGATE, "serve", "--port", "0", "--json", settings=settings) as server:
            port, meter = int(server.said["url"].rpartition(":")[2]), Meter({"it": server.pid})
            fast = await _load(
                Load(port=port, path=OURS, keys=SUBJECTS, lines=LINES, for_s=FOR_S, counts_updating=True)
            )
            cpu_us = 1e6 * meter.read()["it"] / len(fast.took_s)
            async with _starved():
                starved = await _load(
                    Load(
                        port=port,
                        path=f"{OURS}9",  # subjects that were not read yet
                        keys=SUBJECTS,
                        lines=LINES,
                        for_s=FOR_S,
                        per_second=STARVED_RATE,
                        counts_updating=True,
                    )
                )
    return _section(fast, cpu_us, starved)


@asynccontextmanager
async def _starved() -> AsyncGenerator[None]:
    """Beside processes that take all they are given."""
    spinners = [await asyncio.create_subprocess_exec(sys.executable, "-c", _SPIN) for _ in range(SPINNERS)]
    try:
        yield
    finally:
        for each in spinners:
            each.kill()
            await each.wait()


async def _load(load: Load) -> Seen:
    command = (sys.executable, "-m", "bench.read_load", msgspec.json.encode(load).decode())
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    said, _ = await process.communicate()
    return msgspec.json.decode(said, type=Seen)


def _section(fast: Seen, cpu_us: float, starved: Seen) -> Section:
    share = starved.updating / len(starved.took_s)
    told = f"{fast.per_second:,.0f}/s, {cpu_us:.0f} µs of its CPU each"
    return Section(
        "Cold reads of snapshots",
        [
            Figure("cold reads", told, f"≥ {TARGET:,}/s", fast.per_second >= TARGET),
            Figure("of these queued", f"{100 * fast.updating / len(fast.took_s):.1f} %", "100 %"),
            Figure(
                f"{STARVED_RATE:.0f}/s beside {SPINNERS} busy processes: queued",
                f"{100 * share:.1f} %",
                "100 %",
                share == 1,
            ),
            Figure("p50 / p99 of these", _times(starved)),
        ],
        f"One process that answers, {LINES} connections, {os.cpu_count()} cores shared with the client and the Valkey "
        "server. No subject is read twice.",
    )


def _times(seen: Seen) -> str:
    return " / ".join(f"{1000 * percentile(seen.took_s, each):.0f} ms" for each in (0.5, 0.99))


if __name__ == "__main__":
    for figure in asyncio.run(measure()).figures:
        print(figure)
