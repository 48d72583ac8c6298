"""Starts, freezes and kills worker processes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from chaos.messages import Event, Order, WorkerEnded, WorkerReport, WorkerStarted

ROOT = Path(__file__).parents[1]
_BORN_WITHIN_S = 30.0


class ForkServerClient:
    """Runs a fork server; any number of fleets, of any event loop, can start workers with it."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._told: dict[int, Callable[[Event], object]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.fork_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def order(self, order: Order, tell: Callable[[Event], object]) -> int:
        """Start a worker; `tell` is called in a thread of this object with its events. Returns its number."""
        number = next(self._numbers)
        self._told[number] = tell
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(msgspec.structs.replace(order, number=number)) + b"\n")
        self._process.stdin.flush()
        return number

    def close(self) -> None:
        """End the fork server, and with it every worker that is left."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                event = msgspec.json.decode(line, type=Event)
                self._told[event.worker](event)
                if isinstance(event, WorkerEnded):
                    del self._told[event.worker]


class Worker:
    """One process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._born: asyncio.Future[int] = self._loop.create_future()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._said: dict[str, asyncio.Event] = {}
        self.pid = 0

    def hear(self, event: Event) -> None:
        """Called by the fork server client, in its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hear, event)

    def _hear(self, event: Event) -> None:
        match event:
            case WorkerStarted(pid=pid):
                self.pid = pid
                self._born.set_result(pid)
            case WorkerReport(text=text):
                self._saying(text).set()
            case WorkerEnded(exit_code=code):
                self._ended.set_result(code)

    def _saying(self, text: str) -> asyncio.Event:
        return self._said.setdefault(text, asyncio.Event())

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.done()

    async def born(self) -> None:
        """Wait until there is a process."""
        async with asyncio.timeout(_BORN_WITHIN_S):
            await self._born

    async def says(self, text: str, *, within_s: float = 60) -> None:
        """Wait until it has said `text`; raise `ProcessLookupError` when it ends without."""
        said = asyncio.ensure_future(self._saying(text).wait())
        try:
            async with asyncio.timeout(within_s):
                await asyncio.wait([said, self._ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            said.cancel()
        if not self._saying(text).is_set():
            raise ProcessLookupError(f"the worker ended with {self._ended.result()} and never said {text!r}")

    def has_said(self, text: str) -> bool:
        """Whether it has said `text` already."""
        return self._saying(text).is_set()

    async def ends(self, *, within_s: float = 60) -> int:
        """Wait for its end; returns the exit code, below zero the signal that killed it."""
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Kill it."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to stop in good order."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it in its tracks."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with suppress(ProcessLookupError):  # it has ended, and its event was not received yet
                os.kill(self.pid, number)


class Fleet:
    """The workers of one campaign; those that are left at its end are killed."""

    def __init__(self, fork_server: ForkServerClient) -> None:
        self._fork_server = fork_server
        self.workers: list[Worker] = []

    async def start(self, order: Order) -> Worker:
        """A new worker; there is a process when this returns, and not more than that."""
        worker = Worker()
        self.workers.append(worker)
        self._fork_server.order(order, worker.hear)
        await worker.born()
        return worker

    @property
    def alive(self) -> list[Worker]:
        """Those that have not ended."""
        return [worker for worker in self.workers if worker.is_alive]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self.alive
        for worker in left:
            worker.kill()
        for worker in left:
            await worker.ends()
