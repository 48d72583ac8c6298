"""Start a process by a fork of one that has imported everything, and deal with it as with any subprocess."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from tests.processes.order import Born, Ended, Order

_ROOT = Path(__file__).parents[2]
_starting = threading.Lock()
"""Whoever starts several processes at once asks from several threads, and there is one to fork from."""


class WarmProcess:
    """What `asyncio.subprocess.Process` is, as far as the tests need it."""

    def __init__(self, pid: int, life: asyncio.StreamReader, life_writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._life_writer = life_writer
        self._ending = asyncio.create_task(self._end(life))

    @classmethod
    async def start(cls, order: Order, streams: list[int]) -> Self:
        """Have it forked, with these as its standard input, output and error."""
        connection = socket.socket(socket.AF_UNIX)
        address = await asyncio.to_thread(_where_it_listens)
        connection.connect(address)
        said = msgspec.json.encode(order)
        connection.sendall(len(said).to_bytes(4))
        sent = socket.send_fds(connection, [said], streams)
        connection.sendall(said[sent:])
        reader, writer = await asyncio.open_connection(sock=connection)
        born = msgspec.json.decode(await reader.readline(), type=Born)
        return cls(born.pid, reader, writer)

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        return await asyncio.shield(self._ending)

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Give it its input, and wait for its output and its end."""
        if self.stdin is not None:
            self.stdin.write(given or b"")
            self.stdin.close()
        out, err = await asyncio.gather(*(_all_of(stream) for stream in (self.stdout, self.stderr)))
        await self.wait()
        return out, err

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens if it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and we were not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    async def _end(self, life: asyncio.StreamReader) -> int:
        ended = msgspec.json.decode(await life.readline(), type=Ended)
        self.returncode = ended.code
        self._life_writer.close()
        return ended.code


async def start_warm(
    *command: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | BinaryIO = DEVNULL,
    stdout: int | BinaryIO | None = None,
    stderr: int | BinaryIO | None = None,
    owns_terminal: bool = False,
) -> WarmProcess:
    """As `asyncio.create_subprocess_exec`, for `tidegate ...` and `python`, with `-m`, `-c` or a file."""
    order = Order(list(command), dict(os.environ if env is None else env), str(cwd or Path.cwd()), owns_terminal)
    given: list[int] = []
    taken: dict[str, int] = {}
    kept: list[int] = []
    for number, (name, stream) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
        if stream == PIPE:
            read_end, write_end = os.pipe()
            theirs, ours = (read_end, write_end) if name == "stdin" else (write_end, read_end)
            taken[name] = ours
            kept.append(theirs)
        elif stream == DEVNULL:
            theirs = os.open(os.devnull, os.O_RDWR)
            kept.append(theirs)
        elif stream is None:
            theirs = number
        else:
            theirs = stream if isinstance(stream, int) else stream.fileno()
        given.append(theirs)
    try:
        process = await WarmProcess.start(order, given)
    finally:
        for theirs in kept:
            os.close(theirs)
    for name, ours in taken.items():
        setattr(process, name, await (_writer if name == "stdin" else _reader)(ours))
    return process


def _where_it_listens() -> str:
    with _starting:
        return _fork_server()[0]


@cache
def _fork_server() -> tuple[str, subprocess.Popen[bytes]]:
    """Where it listens, and itself: started when the first one asks, it ends with its standard input, which is ours."""
    address = f"{tempfile.mkdtemp(prefix='tidegate-warm-')}/socket"
    command = [sys.executable, "-m", "tests.processes.fork_server", address]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "it could not start"
    return address, process


async def _reader(number: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=1 << 20)
    make: Callable[[], asyncio.Protocol] = lambda: asyncio.StreamReaderProtocol(reader)  # noqa: E731
    await asyncio.get_running_loop().connect_read_pipe(make, os.fdopen(number, "rb", 0))
    return reader


async def _writer(number: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(number, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()
