"""Limiter settings in the form that the scripts need: spans in ms, throughput, and the size of one turn."""

from dataclasses import dataclass
from typing import Any

from tidegate.core.clock import milliseconds
from tidegate.core.priority import Priority
from tidegate.primitives.limiter.settings import Limit, LimiterSettings, Rate, binding

SLOTS_PER_WINDOW = 1000
"""Grants of one slot leave the window together, which costs at most a thousandth of the limit."""
BRISK_MS = 10_000
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
    """Units per ms that the brisk rules let through; where there are none, the slow ones."""
    rules = binding(settings.rules, priority)
    brisk = [rule for rule in rules if isinstance(rule, Rate) or _span_ms(rule, settings) <= BRISK_MS]
    return min(_per_ms(rule, settings) for rule in brisk or rules)


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
