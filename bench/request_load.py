"""Sends prepared requests over HTTP in a process of its own: `-m bench.request_load '{...}'` prints what was seen."""

import itertools
import sys
import time
from pathlib import Path

import msgspec
import uvloop

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


async def main(load: RequestLoad) -> None:
    """Send requests at full speed and print the result."""
    listed = msgspec.msgpack.decode(Path(load.file).read_bytes(), type=list[bytes])
    requests = itertools.cycle(listed) if load.repeats else iter(listed)
    took: list[float] = []
    refused = 0

    def answered(request: bytes, due: float, answer: bytes) -> None:
        nonlocal refused
        del request
        now = time.monotonic()
        took.append(now - due)
        refused += not answer.startswith(b"HTTP/1.1 200 ")
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
