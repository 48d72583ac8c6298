"""The registry of metrics, and the metrics that all systems share: name, meaning, unit.

A system defines its own metrics in the module that `System.metrics` names.

Dashboards and alert rules use these names. A counter `x` is exposed as `x_total`. Labels have few values, chosen by
Tidegate or the operator (a stream, a service, a priority), never a user, a subject or a key.
"""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

__all__ = ["BRIEF_S", "LONG_S", "REGISTRY", "from_zero"]
"""Public: what the owner of a system needs for its metrics."""

REGISTRY = CollectorRegistry()
"""Separate from the default registry, so that an embedding program decides what it exposes."""

BRIEF_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets of requests and other work that lasts up to 30 seconds."""
LONG_S = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Buckets of work that lasts up to an hour."""


def from_zero(metric: Counter | Histogram, *values: str) -> None:
    """Export a metric with one label for these values of it from the start.

    A series that begins with its first event begins at 1, which `increase()` does not count.
    """
    for value in values:
        metric.labels(value)


# The process itself: memory, CPU, open files, start time. Linux only.
ProcessCollector(registry=REGISTRY)
TIDEGATE_BUILD = Info("tidegate_build", "The version of Tidegate that this process runs.", registry=REGISTRY)

# primitives/stream
STREAM_DEPTH = Gauge("stream_depth", "Messages in the stream, delivered or not.", ["stream"], registry=REGISTRY)
STREAM_PENDING_COUNT = Gauge(
    "stream_pending_count", "Messages delivered to a worker and not yet acknowledged.", ["stream"], registry=REGISTRY
)
STREAM_CONSUMER_LAG = Gauge(
    "stream_consumer_lag", "Messages not yet delivered to any worker.", ["stream"], registry=REGISTRY
)
STREAM_DEAD_LETTERS = Gauge(
    "stream_dead_letters",
    "Messages that were delivered too often, to be replayed or discarded.",
    ["stream"],
    registry=REGISTRY,
)
XAUTOCLAIM_RECOVERED = Counter(
    "xautoclaim_recovered", "Messages taken over from workers that died or stalled.", ["stream"], registry=REGISTRY
)
STREAM_DEAD_LETTERED = Counter(
    "stream_dead_lettered",
    "Messages moved to the dead letters after too many deliveries.",
    ["stream"],
    registry=REGISTRY,
)

# primitives/timers and the timekeeper
DELAYED_QUEUE_SIZE = Gauge("delayed_queue_size", "Timers that are not yet due.", ["queue"], registry=REGISTRY)
TIMERS_PROMOTED = Counter("timers_promoted", "Timers that came due and were carried out.", ["queue"], registry=REGISTRY)
TIMER_LATENESS = Histogram(
    "timer_lateness_seconds",
    "How long after its due time a timer was promoted, in seconds.",
    registry=REGISTRY,
    buckets=BRIEF_S,
)
SCHEDULER_SLEEP_DURATION = Histogram(
    "scheduler_sleep_duration",
    "How long the timekeeper slept until a timer or a wake-up, in seconds.",
    registry=REGISTRY,
    buckets=LONG_S,
)
SCHEDULER_LEADER_ACTIVE = Gauge(
    "scheduler_leader_active", "1 while this process is the leader, else 0.", registry=REGISTRY
)

# http
HTTP_REQUESTS = Counter("http_requests", "Requests answered.", ["route", "method", "status"], registry=REGISTRY)
HTTP_REQUEST_SECONDS = Histogram(
    "http_request_seconds",
    "From a request to the beginning of its answer, in seconds.",
    ["route"],
    registry=REGISTRY,
    buckets=BRIEF_S,
)
HTTP_LOGINS = Counter("http_logins", "Attempts to log in, by outcome.", ["outcome"], registry=REGISTRY)
HTTP_KEYS_REFUSED = Counter(
    "http_keys_refused", "Wrong API keys, sent with a request or to log in.", ["where"], registry=REGISTRY
)
from_zero(HTTP_LOGINS, "good", "wrong", "blocked")
from_zero(HTTP_KEYS_REFUSED, "request", "login")
HTTP_LISTENERS = Gauge("http_listeners", "Streams of events that are open.", registry=REGISTRY)

# primitives/gate
GATE_PERMITS = Counter("gate_permits", "Jobs dispatched with a permit.", ["gate"], registry=REGISTRY)
GATE_WAITING = Gauge("gate_waiting", "Jobs in their lanes that wait for a permit.", ["gate"], registry=REGISTRY)
RATE_LIMIT_TOKENS_BLOCKED = Gauge(
    "rate_limit_tokens_blocked", "Credentials that may make no call at present.", ["gate"], registry=REGISTRY
)
RATE_LIMIT_LONGEST_BLOCK = Gauge(
    "rate_limit_longest_block_seconds",
    "How long it takes until the last of the blocked credentials may call again, in seconds; 0 where none is blocked.",
    ["gate"],
    registry=REGISTRY,
)

# primitives/limiter
RATE_LIMITER_ACQUIRED = Counter(
    "rate_limiter_acquired", "Grants given by the limiter, in units.", ["priority"], registry=REGISTRY
)
RATE_LIMITER_REJECTED = Counter(
    "rate_limiter_rejected", "Requests refused by the limiter, in units.", ["priority"], registry=REGISTRY
)
from_zero(RATE_LIMITER_ACQUIRED, "high", "low")
from_zero(RATE_LIMITER_REJECTED, "high", "low")

# primitives/coalescer
DEDUP_COALESCE_HIT = Counter(
    "dedup_coalesce_hit", "Requests answered by work that was already under way.", registry=REGISTRY
)
DEDUP_UPGRADE = Counter(
    "dedup_upgrade", "Work under way that was overtaken by a more urgent request.", registry=REGISTRY
)
DEDUP_LOCK_CONFLICT = Counter(
    "dedup_lock_conflict", "Releases that found the lock expired or held by another request.", registry=REGISTRY
)

# primitives/circuit_breaker
CIRCUIT_BREAKER_REFUSED = Counter(
    "circuit_breaker_refused", "Calls refused because a breaker was open.", ["breaker"], registry=REGISTRY
)

# storage/sql/outbox and the relay
OUTBOX_DEPTH = Gauge(
    "outbox_depth", "Events that the relay has loaded; more may wait in the database.", registry=REGISTRY
)
OUTBOX_PENDING = Gauge("outbox_pending", "Events in the database that are not handled yet.", registry=REGISTRY)
OUTBOX_DEAD = Gauge("outbox_dead", "Events in the database that are dead letters.", registry=REGISTRY)
OUTBOX_OLDEST = Gauge(
    "outbox_oldest_seconds",
    "How long the first of the events that are not handled waits, in seconds.",
    registry=REGISTRY,
)
OUTBOX_DELIVERED = Counter("outbox_delivered", "Events handled.", ["kind"], registry=REGISTRY)
OUTBOX_RETRIED = Counter("outbox_retried", "Failed deliveries that will be retried.", ["kind"], registry=REGISTRY)
OUTBOX_DEAD_LETTERED = Counter("outbox_dead_lettered", "Events moved to the dead letters.", ["kind"], registry=REGISTRY)
OUTBOX_HANDLING = Histogram(
    "outbox_handling_seconds",
    "How long a handler worked on one event, in seconds.",
    ["kind"],
    registry=REGISTRY,
    buckets=BRIEF_S,
)
OUTBOX_WAIT = Histogram(
    "outbox_wait_seconds",
    "From an event's commit to the end of its handling, in seconds.",
    registry=REGISTRY,
    buckets=BRIEF_S,
)

# storage/valkey
REDIS_COMMAND_DURATION = Histogram(
    "redis_command_duration_seconds",
    "How long the Valkey server took to answer a command or a pipeline, blocking ones left out, in seconds.",
    registry=REGISTRY,
    buckets=BRIEF_S,
)

# runtime: supervisor, retention, and gauges that are computed at scrape time
SERVICE_RESTARTS = Counter("service_restarts", "Restarts of services that failed.", ["service"], registry=REGISTRY)
RETENTION_DELETED = Counter(
    "retention_deleted",
    "Rows and dead letters that were deleted because they were too old.",
    ["rule"],
    registry=REGISTRY,
)
METRICS_SOURCE_UP = Gauge(
    "metrics_source_up",
    "Whether the last look at a source succeeded; if not, its gauges are NaN.",
    ["source"],
    registry=REGISTRY,
)


def forget(gauge: Gauge) -> None:
    """Set all values of a gauge to NaN, which alerts do not compare, because the current values are unknown."""
    for family in gauge.collect():
        for sample in family.samples:
            (gauge.labels(**sample.labels) if sample.labels else gauge).set(math.nan)


def exposition() -> bytes:
    """All metrics as text, in the format that Prometheus reads."""
    return generate_latest(REGISTRY)
