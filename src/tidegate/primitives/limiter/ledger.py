"""Server side of the limiter: each step is one script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidegate.core.clock import Clock, milliseconds
from tidegate.core.ids import new_owner
from tidegate.core.priority import Priority
from tidegate.core.telemetry.metrics import RATE_LIMITER_ACQUIRED, RATE_LIMITER_REJECTED
from tidegate.primitives.limiter.keys import LimiterKeys
from tidegate.primitives.limiter.plan import Plan
from tidegate.storage.valkey import Key, Valkey, lua_script

_NUMBERS = {priority: number for number, priority in enumerate(Priority, 1)}


@lua_script("take.lua")
async def _take(
    valkey: Valkey,
    *,
    state: Key,
    counts: Key,
    leaving: Key,
    waiting: Key,
    memory: Key,
    plan: dict[str, Any],
    demands: list[tuple[int, list[int]]],
    owner: str,
    now_ms: int | None,
) -> list[tuple[int, int, int]]: ...


@lua_script("pause.lua")
async def _pause(
    valkey: Valkey,
    *,
    state: Key,
    counts: Key,
    leaving: Key,
    waiting: Key,
    memory: Key,
    plan: dict[str, Any],
    pause_ms: int,
    now_ms: int | None,
) -> int: ...


@lua_script("status.lua")
async def _status(
    valkey: Valkey,
    *,
    state: Key,
    counts: Key,
    leaving: Key,
    waiting: Key,
    memory: Key,
    plan: dict[str, Any],
    now_ms: int | None,
) -> tuple[list[int], int, int, int]: ...


@dataclass(frozen=True)
class Demand:
    """Units that the callers of one priority request, in their order."""

    priority: Priority
    costs: Sequence[int]


@dataclass(frozen=True)
class GrantedRequests:
    """How many requests were granted, starting with the first, and when to ask again for the rest."""

    granted: int
    units: int
    wait_ms: int
    ends_at_ms: float
    """When the permits expire, on the monotonic clock of this process."""
    granted_at_ms: int
    """Server time of the grant, in ms since the epoch."""


@dataclass(frozen=True)
class Usage:
    """Units that currently count against one rule."""

    name: str
    used: int
    limit: int


@dataclass(frozen=True)
class LimiterStatus:
    """Usage of every rule, units that processes wait for, and the rest of a pause."""

    usage: tuple[Usage, ...]
    waiting: dict[Priority, int]
    paused_for: timedelta


class Ledger:
    """Calls the scripts of one key; independent of the callers in this process."""

    def __init__(
        self, valkey: Valkey, keys: LimiterKeys, clock: Clock, plan: Plan, stopwatch: Callable[[], float]
    ) -> None:
        self._valkey, self._keys, self._clock, self._stopwatch = valkey, keys, clock, stopwatch
        self._plan, self._owner = plan, new_owner()

    async def take(self, demands: Sequence[Demand]) -> list[GrantedRequests]:
        """Request permits; one answer per demand. HIGH must come first."""
        # Counted from before the request, so the permit expires in time however long the answer takes.
        ends_at_ms = self._stopwatch() + self._plan.use_by_ms
        replies = await _take(
            self._valkey,
            **self._common(),
            demands=[(_NUMBERS[demand.priority], list(demand.costs)) for demand in demands],
            owner=self._owner,
            now_ms=self._clock.pinned_ms,
        )
        return [
            _booked(demand, granted, wait_ms, ends_at_ms, granted_at_ms)
            for demand, (granted, wait_ms, granted_at_ms) in zip(demands, replies, strict=True)
        ]

    async def pause(self, span: timedelta) -> timedelta:
        """Grant nothing for `span`. Returns the length of the pause, which an earlier one may extend."""
        paused_ms = await _pause(
            self._valkey, **self._common(), pause_ms=milliseconds(span), now_ms=self._clock.pinned_ms
        )
        return timedelta(milliseconds=paused_ms)

    async def status(self) -> LimiterStatus:
        """Read the current usage."""
        used, high, low, paused_ms = await _status(self._valkey, **self._common(), now_ms=self._clock.pinned_ms)
        rules = self._plan.packed["rules"]
        return LimiterStatus(
            usage=tuple(Usage(rule["name"], n, rule["capacity"]) for rule, n in zip(rules, used, strict=True)),
            waiting={Priority.HIGH: high, Priority.LOW: low},
            paused_for=timedelta(milliseconds=paused_ms),
        )

    def _common(self) -> dict[str, Any]:
        keys = self._keys
        return {
            "state": keys.state,
            "counts": keys.counts,
            "leaving": keys.leaving,
            "waiting": keys.waiting,
            "memory": keys.memory,
            "plan": self._plan.packed,
        }


def _booked(demand: Demand, granted: int, wait_ms: int, ends_at_ms: float, granted_at_ms: int) -> GrantedRequests:
    units = sum(demand.costs[:granted])
    RATE_LIMITER_ACQUIRED.labels(demand.priority).inc(units)
    RATE_LIMITER_REJECTED.labels(demand.priority).inc(sum(demand.costs) - units)
    return GrantedRequests(granted, units, wait_ms, ends_at_ms, granted_at_ms)
