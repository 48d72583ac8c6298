"""The root of a process: starts its services, restarts failed ones, and stops all of them gracefully.

Services start in the order in which they were added and stop in reverse order, so a service can rely on those before
it: the heartbeat, added first, renews the lease until the last worker has drained. A service that does not finish in
time is cancelled and reported.

Signal handlers belong to the program: in the lifespan of a web framework, its server has them. A program that consists
of one Tidegate process sets `handle_signals`. Then the first SIGTERM or SIGINT drains, and a second one cancels.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.errors import InvalidArgument
from tidegate.core.telemetry.logs import get_logger
from tidegate.runtime.service import Restarts, Service, keep_running
from tidegate.runtime.waiting import end, first_of

log = get_logger(__name__)

_RESERVE = 0.1
"""Share of the drain time that is kept for the services behind one that hangs, so that they can stop gracefully."""
_CANCEL_WITHIN_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class _Supervised:
    """A service, its stop signal and its task."""

    name: str
    service: Service
    may_end: bool
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[bool] | None" = None


@dataclass(frozen=True)
class StopReport:
    """How each service ended."""

    drained: tuple[str, ...]
    failed: tuple[str, ...]
    """Services that failed while they drained."""
    cancelled: tuple[str, ...]
    """Services that did not finish in time."""

    @property
    def is_clean(self) -> bool:
        """Whether every service finished its work in progress."""
        return not self.failed and not self.cancelled


class Supervisor:
    """Runs the services of a process from start to stop; usable once."""

    def __init__(self, *, drain_within: timedelta = timedelta(seconds=30), restarts: Restarts | None = None) -> None:
        require_positive("drain_within", drain_within.total_seconds())
        self._drain_within_s = drain_within.total_seconds()
        self._restarts = restarts or Restarts()
        self._supervised: list[_Supervised] = []
        self._must_stop, self._must_cancel = asyncio.Event(), asyncio.Event()
        self.is_cut_off = False
        """Whether a service failed or was cancelled while it drained: it may have left work unfinished."""

    def add(self, name: str, service: Service, *, may_end: bool = False) -> None:
        """Add a service. With `may_end`, it may return on its own and is then not restarted."""
        require_name("name", name)
        if any(each.name == name for each in self._supervised):
            raise InvalidArgument("name", name, "there is a service of this name already")
        self._supervised.append(_Supervised(name, service, may_end))

    def stop(self) -> None:
        """Stop gracefully; the second call cancels the services that still run."""
        (self._must_cancel if self._must_stop.is_set() else self._must_stop).set()

    async def run(self, *, handle_signals: bool = False) -> StopReport:
        """Run until `stop` is called, or until all services have ended and all of them may end.

        With `handle_signals`, SIGTERM and SIGINT call `stop`; without it, no signal handler of the program is changed.
        """
        if not self._supervised:
            raise InvalidArgument("services", [], "there is nothing to run")
        with self._signals() if handle_signals else nullcontext():
            tasks = [self._start(each) for each in self._supervised]
            # All services may end on their own if each of them `may_end`.
            everything = asyncio.gather(*tasks)
            ended = asyncio.Event()
            everything.add_done_callback(lambda _: ended.set())
            try:
                await first_of(self._must_stop, ended)
                return await self._stop_all()
            finally:
                # Also if this task is cancelled: no service is left running.
                await end(everything, *tasks)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run for the length of a block and stop gracefully at its end, for use inside another program.

        async with process.running():
            yield  # the lifespan of a web application
        """
        task = asyncio.create_task(self.run(), name="process")
        try:
            yield
        finally:
            # Not `stop`, which would cancel the services if a drain was requested before.
            self._must_stop.set()
            await task

    def _start(self, each: _Supervised) -> "asyncio.Task[bool]":
        work = keep_running(each.name, each.service, each.stopping, restarts=self._restarts, may_end=each.may_end)
        each.task = asyncio.create_task(work, name=each.name)
        return each.task

    async def _stop_all(self) -> StopReport:
        ends: dict[str, list[str]] = {"drained": [], "failed": [], "cancelled": []}
        deadline = asyncio.get_running_loop().time() + self._drain_within_s
        share_s = self._drain_within_s * _RESERVE / len(self._supervised)
        # In reverse order, so that a service ends before those that it depends on. A part of the time is reserved for
        # each service that stops later.
        for behind, each in reversed(list(enumerate(self._supervised))):
            how = await self._drain(each, until=deadline - behind * share_s)
            ends[how].append(each.name)
            # Read by the heartbeat, which stops later: after a cut-off it does not leave.
            self.is_cut_off |= how != "drained"
        return StopReport(tuple(ends["drained"]), tuple(ends["failed"]), tuple(ends["cancelled"]))

    async def _drain(self, each: _Supervised, *, until: float) -> str:
        """Stop one service and return how it ended."""
        assert each.task is not None, "only started services are stopped"
        each.stopping.set()
        must_cancel = asyncio.ensure_future(self._must_cancel.wait())
        left_s = max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait([each.task, must_cancel], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        await end(must_cancel)
        if each.task.done():
            return "cancelled" if each.task.cancelled() else "drained" if each.task.result() else "failed"
        log.error("service.drain_timed_out", service=each.name)
        each.task.cancel()
        # A service that ignores its cancellation must not block the services behind it.
        await asyncio.wait([each.task], timeout=_CANCEL_WITHIN_S)
        return "cancelled"

    @contextmanager
    def _signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
