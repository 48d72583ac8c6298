"""Metrics of snapshots: requests, refreshes, reads, prefetching and the archive."""

from prometheus_client import Counter, Gauge, Histogram

from tidegate.core.telemetry.metrics import BRIEF_S, REGISTRY, from_zero

RATE_LIMITER_RPS = Gauge(
    "rate_limiter_rps", "Calls that the limiter let through in the last second, by all processes.", registry=REGISTRY
)
CONSUMER_LAG = Gauge(
    "consumer_lag", "Events of a topic that were not delivered to the group yet.", ["topic", "group"], registry=REGISTRY
)
DLQ_MESSAGE_COUNT = Gauge("dlq_message_count", "Events that are dead letters.", registry=REGISTRY)
DLQ_MESSAGES = Counter("dlq_messages", "Events that became dead letters.", ["reason"], registry=REGISTRY)
PRODUCER_SEND_FAILED = Counter("producer_send_failed", "Events that could not be published.", registry=REGISTRY)
UPDATE_PROCESS_DURATION = Histogram(
    "update_process_duration_seconds",
    "From an event's receipt to its acknowledgement, the wait for a permit included, in seconds.",
    ["priority"],
    registry=REGISTRY,
    buckets=BRIEF_S,
)
UPDATE_PROCESS_ERROR = Counter(
    "update_process_error", "Refreshes that failed, also those that are tried again.", ["reason"], registry=REGISTRY
)
OBSOLETE_EVENT_SKIPPED = Counter(
    "obsolete_event_skipped", "Events skipped because a newer one of their subject was published.", registry=REGISTRY
)
DB_UPSERT_DURATION = Histogram(
    "db_upsert_duration_seconds",
    "How long a batch of snapshots took to write, in seconds.",
    registry=REGISTRY,
    buckets=BRIEF_S,
)
DB_CIRCUIT_BREAKER_STATE = Gauge(
    "db_circuit_breaker_state", "The breaker of the database: 0 closed, 1 trying, 2 open.", registry=REGISTRY
)
REDIS_CIRCUIT_BREAKER_STATE = Gauge(
    "redis_circuit_breaker_state", "The breaker of the Valkey server: 0 closed, 1 trying, 2 open.", registry=REGISTRY
)
SNAPSHOT_READS = Counter(
    "snapshot_reads", "Snapshots read, by where they were found: local, server or sql.", ["found"], registry=REGISTRY
)
from_zero(DLQ_MESSAGES, "UPSTREAM_4XX", "UPSTREAM_5XX", "PARSE_ERROR", "WRONG_SUBJECT", "UNKNOWN_SCHEMA")
from_zero(UPDATE_PROCESS_DURATION, "high", "low")
from_zero(UPDATE_PROCESS_ERROR, "UPSTREAM_4XX", "UPSTREAM_5XX", "PARSE_ERROR", "WRONG_SUBJECT", "UNKNOWN_SCHEMA")
from_zero(UPDATE_PROCESS_ERROR, "UPSTREAM_429")

# systems/snapshots/prefetch and systems/snapshots/archive
PREFETCH_ASKED = Counter(
    "prefetch_asked",
    "Subjects asked for by the clock: published, coalesced with work under way, or failed.",
    ["outcome"],
    registry=REGISTRY,
)
ARCHIVE_ENTRIES_MOVED = Counter(
    "archive_entries_moved", "Old entries of the history that were moved to the archive.", registry=REGISTRY
)
