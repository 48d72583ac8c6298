"""All metrics: name, meaning, unit.

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
LONG_S = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0)


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

# engine/due_schedules
SCHEDULES_FIRED = Counter(
    "schedules_fired", "Schedules that were due: begun, skipped or failed.", ["outcome"], registry=REGISTRY
)
from_zero(SCHEDULES_FIRED, "begun", "skipped", "failed")

# engine: counted where it happens, or computed by engine/reports/gauges.py at scrape time
COLLECTION_RUNS_ACTIVE = Gauge("collection_runs_active", "Runs that are not over.", registry=REGISTRY)
PAGE_JOBS_PENDING = Gauge("page_jobs_pending", "Jobs of active runs that have not ended.", registry=REGISTRY)
PAGE_JOBS_FAILED_RATE = Gauge(
    "page_jobs_failed_rate",
    "Failed jobs among those that ended, from 0 to 1: of active runs, and of those that ended in the last 15 minutes.",
    registry=REGISTRY,
)
JOB_PROCESSING_TIME = Histogram(
    "job_processing_time",
    "Duration of a job in a worker: its call, and the wait until the committer took its result, in seconds.",
    ["kind"],
    registry=REGISTRY,
    buckets=LONG_S,
)
COLLECT_ITEMS_SKIPPED = Counter(
    "collect_items_skipped",
    "Items of lists that could not be read and were left out: null, without an id, or of an unexpected type.",
    ["source", "kind"],
    registry=REGISTRY,
)
RETENTION_DELETED = Counter(
    "retention_deleted",
    "Rows and dead letters that were deleted because they were too old.",
    ["rule"],
    registry=REGISTRY,
)
COLLECT_RESULTS_REFUSED = Counter(
    "collect_results_refused",
    "Results that could not be written: refused, and the job is tried again; unwritten, not even its end was taken.",
    ["fate"],
    registry=REGISTRY,
)
from_zero(COLLECT_RESULTS_REFUSED, "refused", "unwritten")
METRICS_SOURCE_UP = Gauge(
    "metrics_source_up",
    "Whether the last look at a source succeeded; if not, its gauges are NaN.",
    ["source"],
    registry=REGISTRY,
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

# systems/ranking
RANKING_EVENTS = Counter(
    "ranking_events", "Events that came to a board: counted, repeated or late.", ["board", "outcome"], registry=REGISTRY
)
RANKING_READS_DEGRADED = Counter(
    "ranking_reads_degraded", "Ranking requests that were answered empty because Valkey failed.", registry=REGISTRY
)
RANKING_REBUILT = Counter("ranking_rebuilt", "Boards that were rebuilt from SQL.", ["board"], registry=REGISTRY)

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

# snapshots/prefetch and snapshots/archive
PREFETCH_ASKED = Counter(
    "prefetch_asked",
    "Subjects asked for by the clock: published, coalesced with work under way, or failed.",
    ["outcome"],
    registry=REGISTRY,
)
ARCHIVE_ENTRIES_MOVED = Counter(
    "archive_entries_moved", "Old entries of the history that were moved to the archive.", registry=REGISTRY
)

# aws
SQS_TRIGGERS = Counter(
    "sqs_triggers",
    "Messages of the trigger queue: fired, refused, malformed, failed (to be shown again) or given up.",
    ["outcome"],
    registry=REGISTRY,
)
SQS_TICKETS = Counter(
    "sqs_tickets", "Tickets of jobs on SQS: sent, sent again, taken, or void.", ["outcome"], registry=REGISTRY
)

# credentials
CREDENTIALS_REFUSED = Counter(
    "credentials_refused", "Secrets that the upstream refused and that are used no more.", registry=REGISTRY
)
CREDENTIAL_TOKENS_ISSUED = Counter(
    "credential_tokens_issued", "Tokens issued to installations of apps.", registry=REGISTRY
)

# snapshots
RATE_LIMITER_RPS = Gauge(
    "rate_limiter_rps", "Calls that the limiter let through in the last second, by all processes.", registry=REGISTRY
)
CONSUMER_LAG = Gauge(
    "consumer_lag", "Events of a topic that were not delivered to the group yet.", ["topic", "group"], registry=REGISTRY
)
DLQ_MESSAGE_COUNT = Gauge("dlq_message_count", "Events that are dead letters.", registry=REGISTRY)
DLQ_MESSAGES = Counter("dlq_messages", "Events that became dead letters.", ["reason"], registry=REGISTRY)
from_zero(DLQ_MESSAGES, "UPSTREAM_4XX", "UPSTREAM_5XX", "PARSE_ERROR", "WRONG_SUBJECT", "UNKNOWN_SCHEMA")
PRODUCER_SEND_FAILED = Counter("producer_send_failed", "Events that could not be published.", registry=REGISTRY)
UPDATE_PROCESS_DURATION = Histogram(
    "update_process_duration_seconds",
    "From an event's receipt to its acknowledgement, the wait for a permit included, in seconds.",
    ["priority"],
    registry=REGISTRY,
    buckets=BRIEF_S,
)
from_zero(UPDATE_PROCESS_DURATION, "high", "low")
UPDATE_PROCESS_ERROR = Counter(
    "update_process_error", "Refreshes that failed, also those that are tried again.", ["reason"], registry=REGISTRY
)
from_zero(UPDATE_PROCESS_ERROR, "UPSTREAM_4XX", "UPSTREAM_5XX", "PARSE_ERROR", "WRONG_SUBJECT", "UNKNOWN_SCHEMA")
from_zero(UPDATE_PROCESS_ERROR, "UPSTREAM_429")
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
REDIS_COMMAND_DURATION = Histogram(
    "redis_command_duration_seconds",
    "How long the Valkey server took to answer a command or a pipeline, blocking ones left out, in seconds.",
    registry=REGISTRY,
    buckets=BRIEF_S,
)
SNAPSHOT_READS = Counter(
    "snapshot_reads", "Snapshots read, by where they were found: local, server or sql.", ["found"], registry=REGISTRY
)

# systems/waiting_room
ROOM_ADMITTED = Counter("room_admitted", "Visitors admitted to a room.", ["room"], registry=REGISTRY)
ROOM_ENDED = Counter(
    "room_ended",
    "Sessions that ended: expired, left, rolled_back (to the old place in line), dropped (from the line).",
    ["room", "outcome"],
    registry=REGISTRY,
)
ROOM_WAITING = Gauge(
    "room_waiting", "Visitors in the line of a room, as the leader last counted them.", ["room"], registry=REGISTRY
)
ROOM_THROTTLED = Counter(
    "room_throttled", "Visitors refused because too many had joined from their address.", registry=REGISTRY
)
ROOM_WATCHERS = Gauge(
    "room_watchers", "Open event streams of visitors that follow their place.", ["room"], registry=REGISTRY
)

# systems/campaigns: counted where it happens, or computed by campaigns/metrics.py at scrape time
CAMPAIGN_ENTRIES = Counter(
    "campaign_entries",
    "Attempts to enter a campaign, by answer: accepted, duplicate, sold_out, not_open, busy.",
    ["answer"],
    registry=REGISTRY,
)
CAMPAIGN_PROCESSED = Counter(
    "campaign_processed",
    "Entries that were decided: issued, refused, sold_out, known (the user had been decided before).",
    ["outcome"],
    registry=REGISTRY,
)
from_zero(CAMPAIGN_ENTRIES, "accepted", "duplicate", "sold_out", "not_open", "busy")
from_zero(CAMPAIGN_PROCESSED, "issued", "refused", "sold_out", "known")
CAMPAIGN_CONSUMER_POOLS = Gauge("campaign_consumer_pools", "Campaigns that this process serves.", registry=REGISTRY)
CAMPAIGN_CONSUMERS = Gauge("campaign_consumers", "Consumers of campaigns in this process.", registry=REGISTRY)
CAMPAIGNS_ACTIVE = Gauge("campaigns_active", "Campaigns with undecided entries or with consumers.", registry=REGISTRY)
CAMPAIGN_PENDING = Gauge("campaign_pending", "Entries of all campaigns that are not decided.", registry=REGISTRY)
CAMPAIGN_DEAD_LETTERS = Gauge("campaign_dead_letters", "Entries that became dead letters.", registry=REGISTRY)

# engine/completion
STATS_RETRY_QUEUE_SIZE = Gauge(
    "stats_retry_queue_size", "Runs with failed statistics, which will be retried.", registry=REGISTRY
)

# crawl
CRAWL_PAGES = Counter(
    "crawl_pages",
    "Parts of products that were answered: `stored` is new, `equal` and `not_modified` say what was known.",
    ["outcome"],
    registry=REGISTRY,
)
CRAWL_RAWS = Counter("crawl_raws", "Stored answers, by outcome.", ["outcome"], registry=REGISTRY)
CRAWL_RAWS_PENDING = Gauge("crawl_raws_pending", "Stored answers that are not applied yet.", registry=REGISTRY)
CRAWL_RAWS_DEAD = Gauge("crawl_raws_dead", "Stored answers that became dead letters.", registry=REGISTRY)

# upstream
UPSTREAM_REQUESTS = Counter(
    "upstream_requests", "Calls made, by the class of their status or `failed`.", ["host", "status"], registry=REGISTRY
)
UPSTREAM_REQUESTS_SENT = Counter(
    "upstream_requests_sent",
    "Requests that left this process, counted right before their first byte, by what their permit was counted against: "
    "a credential, `high`, `low`, or `none`.",
    ["client", "host", "spends"],
    registry=REGISTRY,
)
UPSTREAM_REQUESTS_PEAK = Gauge(
    "upstream_requests_peak",
    "The most requests that left this process within one second of the last minute.",
    ["client"],
    registry=REGISTRY,
)
UPSTREAM_REQUEST_SECONDS = Histogram(
    "upstream_request_seconds",
    "From a request to the last byte of its answer, in seconds.",
    ["host"],
    registry=REGISTRY,
    buckets=BRIEF_S,
)

# runtime/supervisor
SERVICE_RESTARTS = Counter("service_restarts", "Restarts of services that failed.", ["service"], registry=REGISTRY)


def forget(gauge: Gauge) -> None:
    """Set all values of a gauge to NaN, which alerts do not compare, because the current values are unknown."""
    for family in gauge.collect():
        for sample in family.samples:
            (gauge.labels(**sample.labels) if sample.labels else gauge).set(math.nan)


# systems/github: webhooks
GITHUB_WEBHOOK_DELIVERIES = Counter(
    "github_webhook_deliveries",
    "Deliveries of GitHub's webhooks, by event and result: accepted, duplicate, ignored, pong or refused.",
    ["event", "result"],
    registry=REGISTRY,
)
GITHUB_WEBHOOK_DOCUMENTS = Counter(
    "github_webhook_documents", "Documents that deliveries of webhooks changed, by event.", ["event"], registry=REGISTRY
)
GITHUB_WEBHOOK_APPLY = Histogram(
    "github_webhook_apply_seconds",
    "Time from the start of applying a delivery to the commit of its documents, in seconds.",
    buckets=BRIEF_S,
    registry=REGISTRY,
)


def forget_room(room: str) -> None:
    """Remove the metrics of a room that was deleted."""
    for metric in (ROOM_ADMITTED, ROOM_ENDED, ROOM_WAITING):
        for family in metric.collect():
            for labels in {tuple(sample.labels.values()) for sample in family.samples if sample.labels["room"] == room}:
                metric.remove(*labels)


def exposition() -> bytes:
    """All metrics as text, in the format that Prometheus reads."""
    return generate_latest(REGISTRY)
