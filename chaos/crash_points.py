"""Where a worker can be made to kill itself: before, inside and after every step that leaves a trace.

A step is an action that other processes can see: a transaction, a call to the upstream, a script of the gate.
The process ends by SIGKILL, so nothing is flushed, drained or reported. Between two such steps nothing but memory
changes, and memory is lost in any case.
"""

import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.core.arguments import require_positive
from tidegate.core.errors import InvalidArgument
from tidegate.engine.completion import Completion
from tidegate.engine.upstream import UpstreamClient
from tidegate.primitives.gate import Gate
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Consumer
from tidegate.storage.sql import Database, Transaction

_STEPS: dict[str, tuple[type, str]] = {
    "read": (Consumer, "read"),
    "call": (UpstreamClient, "fetch"),
    "offer": (Gate, "enqueue"),
    "settle": (Gate, "settle"),
    "rebuild": (Gate, "rebuild"),
    "complete": (Completion, "complete"),
    "remove": (Membership, "remove"),
}
_TRANSACTION = "commit"
POINTS = frozenset(
    {f"{step}.{when}" for step in (*_STEPS, _TRANSACTION) for when in ("before", "after")} | {f"{_TRANSACTION}.inside"}
)


def die_at(where: str) -> None:
    """Have this process kill itself the n-th time it comes to a point, given as `point:n`."""
    point, _, number = where.partition(":")
    times = int(number or 1)
    require_positive("times", times)
    if point not in POINTS:
        raise InvalidArgument("die_at", where, f"must be one of {', '.join(sorted(POINTS))}")
    trap = _Trap(point, times)
    step = point.partition(".")[0]
    if step == _TRANSACTION:
        _watch_transactions(trap)
    else:
        _watch(step, trap)


class _Trap:
    """Counts how often each point was reached, and kills at the chosen one."""

    def __init__(self, point: str, times: int) -> None:
        self._point, self._times = point, times
        self._reached = Counter[str]()

    def reach(self, point: str) -> None:
        self._reached[point] += 1
        if point == self._point and self._reached[point] >= self._times:
            os.kill(os.getpid(), signal.SIGKILL)


def _watch(step: str, trap: _Trap) -> None:
    owner, name = _STEPS[step]
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        trap.reach(f"{step}.before")
        result = await original(self, *args, **kwargs)
        trap.reach(f"{step}.after")
        return result

    setattr(owner, name, watched)


def _watch_transactions(trap: _Trap) -> None:
    """Those of collection; the relay, for instance, has its own tests."""
    original: Any = Database.transaction

    async def watched(self: Database, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if not work.__module__.startswith("tidegate.engine"):
            return await original(self, work, *args, **options)

        def inside(tx: Transaction, *given: Any) -> Any:
            result = work(tx, *given)
            trap.reach(f"{_TRANSACTION}.inside")
            return result

        trap.reach(f"{_TRANSACTION}.before")
        result = await original(self, inside, *args, **options)
        trap.reach(f"{_TRANSACTION}.after")
        return result

    setattr(Database, "transaction", watched)  # noqa: B010
