"""The stream against the queues people use instead, on one server, in one run.

Tidegate does the whole path: add, read, acknowledge, one after the other, in one process. The peers only drain, which
flatters them: their jobs are in the queue before the clock starts.
"""

import asyncio
import subprocess
import time
from pathlib import Path

from bench.figures import Figure, Section
from bench.server import tcp_server
from tidegate.core.ids import new_id
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Valkey

MESSAGES, BATCH = 100_000, 100
PEER_JOBS = 5_000
PEERS = ("taskiq", "dramatiq", "huey", "saq")
_FOLDER = Path(__file__).parent / "peers"
_PEER_PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"


async def measure() -> Section:
    with tcp_server() as url:
        rates = await peer_rates(url)
        ours = max([await _ours(url) for _ in range(2)])
    best = max(rates, key=lambda name: rates[name])
    ratio = ours / rates[best]
    figures = [Figure(f"{name}: drain of {PEER_JOBS:,} no-op jobs", f"{rate:,.0f}/s") for name, rate in rates.items()]
    ours_figure = Figure(f"tidegate: add, read, ack of {MESSAGES:,} no-op messages", f"{ours:,.0f}/s")
    figures += [ours_figure, Figure(f"tidegate / best peer ({best})", f"{ratio:.1f}x", "≥ 10x", ratio >= 10)]
    return Section(
        "Stream",
        figures,
        "One process each, the better of two runs each; batches of 100 for Tidegate, drain alone for the peers.",
    )


async def peer_rates(url: str) -> dict[str, float]:
    """No-op jobs per second that each of them drains; the better of two runs."""
    return {name: max([await asyncio.to_thread(_peer, name, url) for _ in range(2)]) for name in PEERS}


def _peer(name: str, url: str) -> float:
    command = [str(_PEER_PYTHON), str(_FOLDER / f"run_{name}.py"), url, str(PEER_JOBS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(done.stdout.split()[-1])


async def _ours(url: str) -> float:
    valkey = await Valkey.connect(url)
    stream = Stream(valkey, valkey.unit(new_id()), "bench")
    consumer = stream.consumer("bench")
    message = {b"job": b"no-op", b"n": b"1"}
    began = time.perf_counter()
    for _ in range(MESSAGES // BATCH):
        await stream.add([message] * BATCH)
    left = MESSAGES
    while left:
        messages = await consumer.read(BATCH, within_s=5)
        left -= await consumer.ack([each.id for each in messages])
    rate = MESSAGES / (time.perf_counter() - began)
    await valkey.close()
    return rate
