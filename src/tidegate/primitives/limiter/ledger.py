"""Server side of the limiter: its keys, its rules in the form that the scripts need, and the permits that it grants.

Each step is one script. All keys are in one unit, since all rules are applied in one atomic step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from tidegate.core.clock import Clock, milliseconds, monotonic_ms
from tidegate.core.errors import GrantVoid
from tidegate.core.ids import new_owner
from tidegate.core.priority import Priority
from tidegate.core.telemetry.metrics import RATE_LIMITER_ACQUIRED, RATE_LIMITER_REJECTED
from tidegate.primitives.limiter.settings import Limit, LimiterSettings, Rate, binding
from tidegate.storage.valkey import Key, Unit, Valkey, lua_script


class LimiterKeys:
    """Keys of one limiter, or of one key of a limiter. The size depends on rules and waiting processes, not on traffic.

    A key such as `user:42` is hashed: its text may be an address or a token, and does not appear on the server.
    """

    def __init__(self, unit: Unit, key: str = "") -> None:
        which = blake2b(key.encode(), digest_size=16).hexdigest() if key else "all"
        self.state: Key = unit.key(f"state:{which}")
        """hash: highest server time seen, end of the pause, units spent per rule."""
        self.counts: Key = unit.key(f"counts:{which}")
        """hash: `rule|slot` -> units granted in that time slot."""
        self.leaving: Key = unit.key(f"leaving:{which}")
        """zset: `rule|slot` scored by the time at which it has left every window of its rule."""
        self.waiting: Key = unit.key(f"waiting:{which}")
        """hash: `priority|owner` -> units requested, units reserved, time at which the owner asks again."""
        self.memory: Key = unit.key("memory")
        """string: since when the server has recorded grants; shared by all keys of the limiter."""


SLOTS_PER_WINDOW = 1000
"""Grants of one slot leave the window together, which costs at most a thousandth of the limit."""
SHORT_WINDOW_MS = 10_000
"""Rules that renew within this time determine how fast waiting callers are served."""
GRACE_MS = 250
"""How long a process keeps its place in the queue after the time at which it should have asked again."""
LONGEST_LINE_MS = 1000
"""Upper bound of the wait that is caused by other waiting processes: they may vanish, and LOW must use its floor."""
KEPT_MS = 60_000
"""How much longer than its longest window an unused limiter is kept: then all its grants have left the windows."""


@dataclass(frozen=True)
class Plan:
    """Parameters that every script call needs, and the largest request of each priority."""

    packed: dict[str, Any]
    most_units: dict[Priority, int]
    use_by_ms: int
    """How long a permit is valid, counted from its request."""


def make_plan(settings: LimiterSettings) -> Plan:
    """Compute the parameters that are the same for every call."""
    flow = {priority: _flow(settings, priority) for priority in Priority}
    pace_ms = milliseconds(settings.pace)
    spans = [_span_ms(rule, settings) for rule in settings.rules]
    return Plan(
        packed={
            "rules": [_packed_rule(rule, settings) for rule in settings.rules],
            "floor": _packed_floor(settings.low_floor * flow[Priority.LOW]),
            "flow": [flow[priority] for priority in Priority],
            # Units that pass within one pace, and at least one.
            "share": [max(1, int(flow[priority] * pace_ms)) for priority in Priority],
            "quiet_ms": milliseconds(settings.quiet_start),
            "grace_ms": GRACE_MS,
            "longest_line_ms": LONGEST_LINE_MS,
            "ttl_ms": int(max(spans)) + KEPT_MS,
        },
        most_units={
            priority: min(_capacity(rule) for rule in binding(settings.rules, priority)) for priority in Priority
        },
        use_by_ms=milliseconds(settings.use_by),
    )


def _capacity(rule: Limit | Rate) -> int:
    return rule.permits if isinstance(rule, Limit) else rule.burst


def _span_ms(rule: Limit | Rate, settings: LimiterSettings) -> float:
    """How long a unit counts. Calls that arrive within one window were granted within `window + use_by + guard`: the
    first may have been used at the last moment and been slow, the last at once and been quick."""
    if isinstance(rule, Rate):
        return rule.burst / rule.per_second * 1000
    return milliseconds(rule.window + settings.use_by + settings.guard)


def _per_ms(rule: Limit | Rate, settings: LimiterSettings) -> float:
    return _capacity(rule) / _span_ms(rule, settings)


def _flow(settings: LimiterSettings, priority: Priority) -> float:
    """Units per ms that the rules with short windows allow; where there are none, those with long ones."""
    rules = binding(settings.rules, priority)
    short_rules = [rule for rule in rules if isinstance(rule, Rate) or _span_ms(rule, settings) <= SHORT_WINDOW_MS]
    return min(_per_ms(rule, settings) for rule in short_rules or rules)


def _packed_floor(per_ms: float) -> dict[str, Any]:
    """A bucket of a second's worth, for LOW alone; it needs no name, and no rule can have an empty one."""
    return {"name": "", "capacity": max(1.0, per_ms * 1000) if per_ms else 0, "per_ms": per_ms}


def _packed_rule(rule: Limit | Rate, settings: LimiterSettings) -> dict[str, Any]:
    packed: dict[str, Any] = {
        "name": rule.name,
        "capacity": _capacity(rule),
        "binds": [priority in rule.priorities for priority in Priority],
    }
    if isinstance(rule, Rate):
        return packed | {"per_ms": rule.per_second / 1000}
    span_ms = int(_span_ms(rule, settings))
    return packed | {"span_ms": span_ms, "grain_ms": max(1, span_ms // SLOTS_PER_WINDOW)}


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


@dataclass(eq=False)
class Tally:
    """How many permits of one answer of the server were used."""

    used: int = 0
    void: int = 0
    """Permits that expired before they were used."""


@dataclass(eq=False)
class Grant:
    """The right to send one request of `units`, once and within a short time.

    Call `use` right before the first byte is sent, when the connection is open. The time counts from before the server
    was asked, on a monotonic clock, so the permit expires for the caller no later than for the server.
    """

    priority: Priority
    units: int
    ends_at_ms: float
    """On the monotonic clock of this process."""
    granted_at_ms: int
    """Server time of the grant, in ms since the epoch. It orders calls independently of the processes' clocks."""
    stopwatch: Callable[[], float] = field(default=monotonic_ms, repr=False)
    tally: Tally = field(default_factory=Tally, repr=False)
    on_late: "Callable[[Grant], None] | None" = field(default=None, repr=False)
    """Called when a request was sent after its permit expired."""
    _used: bool = field(default=False, init=False, repr=False)

    @property
    def spends(self) -> str:
        """What the request is counted against, for metrics."""
        return self.priority

    @property
    def is_alive(self) -> bool:
        """Whether the permit can be used now."""
        return not self._used and self.stopwatch() < self.ends_at_ms

    def use(self) -> None:
        """Use the permit. Raises `GrantVoid` if it expired or was used; then the call must not be made."""
        if self._used:
            raise GrantVoid("this permit was used already; each call needs its own")
        late_ms = self.stopwatch() - self.ends_at_ms
        if late_ms >= 0:
            self.tally.void += 1
            raise GrantVoid(f"this permit expired {late_ms:.0f} ms ago; take another")
        self._used = True
        self.tally.used += 1

    def sent(self) -> None:
        """Record that the request was sent. If the permit had expired (the process was suspended since `use`), the
        request is counted again, at the current time."""
        if self.on_late is not None and self.stopwatch() >= self.ends_at_ms:
            self.on_late(self)
