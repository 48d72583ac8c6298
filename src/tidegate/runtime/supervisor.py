"""The root of a process: starts its services, keeps them running, and stops them in good order.

Services start in the order in which they were added and stop in the reverse one, so each may rely on those before it
until its own end: the heartbeat, added first, beats until the last worker has drained. What has not finished in time is
cancelled and named.

Signals belong to the program, not to this class: in a web framework's lifespan the server handles them. A program that
is nothing but a process of ours asks for it with `handle_signals`: then the first SIGTERM or SIGINT asks everything to
drain, and a second one cancels at once.
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
"""The part of the drain time kept for those behind a service that hangs, so that they too can leave properly."""
_CANCEL_WITHIN_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class _Charge:
    """A service in our care."""

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
    """Those that fell while they drained."""
    cancelled: tuple[str, ...]
    """Those that did not finish in time."""

    @property
    def in_good_order(self) -> bool:
        """Whether everything finished what it had begun."""
        return not self.failed and not self.cancelled


class Supervisor:
    """Owns the services of a process from start to stop; runs once."""

    def __init__(self, *, drain_within: timedelta = timedelta(seconds=30), restarts: Restarts | None = None) -> None:
        require_positive("drain_within", drain_within.total_seconds())
        self._drain_within_s = drain_within.total_seconds()
        self._restarts = restarts or Restarts()
        self._charges: list[_Charge] = []
        self._told_to_stop, self._told_to_hurry = asyncio.Event(), asyncio.Event()
        self.is_cut_off = False
        """Whether a service fell or was cancelled while it drained: it may have left work unfinished."""

    def add(self, name: str, service: Service, *, may_end: bool = False) -> None:
        """Take a service into care. `may_end`: it may return by itself and is then not started again."""
        require_name("name", name)
        if any(charge.name == name for charge in self._charges):
            raise InvalidArgument("name", name, "there is a service of this name already")
        self._charges.append(_Charge(name, service, may_end))

    def stop(self) -> None:
        """Ask for an orderly stop; asked again, cancel what still runs."""
        (self._told_to_hurry if self._told_to_stop.is_set() else self._told_to_stop).set()

    async def run(self, *, handle_signals: bool = False) -> StopReport:
        """Run until told to stop, or until all services that may end have and there are no others.

        With `handle_signals`, SIGTERM and SIGINT call `stop`; without it, no signal handler of the program is touched.
        """
        if not self._charges:
            raise InvalidArgument("services", [], "there is nothing to run")
        with self._signals() if handle_signals else nullcontext():
            tasks = [self._start(charge) for charge in self._charges]
            everything = asyncio.gather(*tasks)
            ended = asyncio.Event()
            everything.add_done_callback(lambda _: ended.set())
            try:
                await first_of(self._told_to_stop, ended)
                return await self._stop_all()
            finally:
                await end(everything, *tasks)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run for the length of a block, and stop in good order at its end: for use inside another program.

        async with process.running():
            yield  # the lifespan of a web application
        """
        task = asyncio.create_task(self.run(), name="process")
        try:
            yield
        finally:
            self._told_to_stop.set()
            await task

    def _start(self, charge: _Charge) -> "asyncio.Task[bool]":
        work = keep_running(
            charge.name, charge.service, charge.stopping, restarts=self._restarts, may_end=charge.may_end
        )
        charge.task = asyncio.create_task(work, name=charge.name)
        return charge.task

    async def _stop_all(self) -> StopReport:
        ends: dict[str, list[str]] = {"drained": [], "failed": [], "cancelled": []}
        deadline = asyncio.get_running_loop().time() + self._drain_within_s
        share_s = self._drain_within_s * _RESERVE / len(self._charges)
        for behind, charge in reversed(list(enumerate(self._charges))):
            how = await self._drain(charge, until=deadline - behind * share_s)
            ends[how].append(charge.name)
            self.is_cut_off |= how != "drained"
        return StopReport(tuple(ends["drained"]), tuple(ends["failed"]), tuple(ends["cancelled"]))

    async def _drain(self, charge: _Charge, *, until: float) -> str:
        """Stop one service, and say how it ended."""
        assert charge.task is not None, "only what was started is stopped"
        charge.stopping.set()
        hurried = asyncio.ensure_future(self._told_to_hurry.wait())
        left_s = max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait([charge.task, hurried], timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        await end(hurried)
        if charge.task.done():
            return "cancelled" if charge.task.cancelled() else "drained" if charge.task.result() else "failed"
        log.error("service.drain_timed_out", service=charge.name)
        charge.task.cancel()
        await asyncio.wait([charge.task], timeout=_CANCEL_WITHIN_S)
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
