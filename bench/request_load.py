"""Sends prepared requests over HTTP in a process of its own: `-m bench.request_load '{...}'` prints what was seen."""

import asyncio
import itertools
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from bench.processes import Meter
from bench.read_load import Seen
from bench.reading import Pool, read_at_full_speed


class RequestLoad(msgspec.Struct, frozen=True):
    """The requests to send, and for how long."""

    port: int
    file: str
    """A list of requests in MessagePack, which are sent in this order."""
    lines: int
    """Connections."""
    for_s: float
    repeats: bool = False
    """Whether the list is repeated at its end."""
    status: int = 200
    """The status of expected answers; others count as refused."""


class Speed(msgspec.Struct, frozen=True):
    """How fast one server answered."""

    per_second: float
    cpu_us: float
    """CPU time of its process per request."""
    client: float
    """How busy the client was."""

    def text(self) -> str:
        """The speed for a table."""
        client = f"the client: {self.client:.0%} of a core"
        return f"{self.per_second:,.0f}/s, {self.cpu_us:.0f} µs of its CPU each ({client})"


def post(path: str, body: bytes) -> bytes:
    """A request with a JSON body, as it is sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def write_requests(path: Path, requests: Sequence[bytes]) -> str:
    """Write a file of requests for `RequestLoad.file`; return its path."""
    path.write_bytes(msgspec.msgpack.encode(requests))
    return str(path)


async def measure_speed(load: RequestLoad, pid: int) -> Speed:
    """Send requests to the server with this process id. Raises `RuntimeError` if one is refused."""
    meter = Meter({"it": pid})
    command = (sys.executable, "-m", "bench.request_load", msgspec.json.encode(load).decode())
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    told, _ = await process.communicate()
    seen = msgspec.json.decode(told, type=Seen)
    if seen.refused:
        raise RuntimeError(f"{seen.refused} of {len(seen.took_s)} requests of {load.file} were refused")
    return Speed(seen.per_second, 1e6 * meter.read()["it"] / len(seen.took_s), seen.busy)


async def main(load: RequestLoad) -> None:
    """Send requests at full speed and print the result."""
    listed = msgspec.msgpack.decode(Path(load.file).read_bytes(), type=list[bytes])
    requests = itertools.cycle(listed) if load.repeats else iter(listed)
    took: list[float] = []
    refused, expected = 0, b"HTTP/1.1 %d " % load.status

    def answered(request: bytes, due: float, answer: bytes) -> None:
        nonlocal refused
        del request
        now = time.monotonic()
        took.append(now - due)
        refused += not answer.startswith(expected)
        if (following := next(requests, None)) is not None:
            pool.ask(following, now)

    pool = Pool(answered)
    await pool.connect(load.port, load.lines)
    began, cpu = time.monotonic(), time.process_time()
    await read_at_full_speed(pool, requests, lines=load.lines, for_s=load.for_s)
    seconds = time.monotonic() - began
    busy = (time.process_time() - cpu) / seconds
    pool.close()
    seen = Seen(per_second=len(took) / seconds, took_s=sorted(took), refused=refused, updating=0, busy=busy)
    print(msgspec.json.encode(seen).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(msgspec.json.decode(sys.argv[1], type=RequestLoad)))
