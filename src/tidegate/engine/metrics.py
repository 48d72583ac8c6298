"""Metrics of the engine: runs, jobs, schedules, credentials, calls to upstreams, and SQS."""

from prometheus_client import Counter, Gauge, Histogram

from tidegate.core.telemetry.metrics import BRIEF_S, LONG_S, REGISTRY, from_zero

# engine/schedules
SCHEDULES_FIRED = Counter(
    "schedules_fired", "Schedules that were due: begun, skipped or failed.", ["outcome"], registry=REGISTRY
)
from_zero(SCHEDULES_FIRED, "begun", "skipped", "failed")

# engine/reports
COLLECTION_RUNS_ACTIVE = Gauge("collection_runs_active", "Runs that are not over.", registry=REGISTRY)
PAGE_JOBS_PENDING = Gauge("page_jobs_pending", "Jobs of active runs that have not ended.", registry=REGISTRY)
PAGE_JOBS_FAILED_RATE = Gauge(
    "page_jobs_failed_rate",
    "Failed jobs among those that ended, from 0 to 1: of active runs, and of those that ended in the last 15 minutes.",
    registry=REGISTRY,
)

# engine/worker and the committer
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
COLLECT_RESULTS_REFUSED = Counter(
    "collect_results_refused",
    "Results that could not be written: refused, and the job is tried again; unwritten, not even its end was taken.",
    ["fate"],
    registry=REGISTRY,
)
from_zero(COLLECT_RESULTS_REFUSED, "refused", "unwritten")

# engine/completion
STATS_RETRY_QUEUE_SIZE = Gauge(
    "stats_retry_queue_size", "Runs with failed statistics, which will be retried.", registry=REGISTRY
)

# engine/sqs
SQS_TRIGGERS = Counter(
    "sqs_triggers",
    "Messages of the trigger queue: fired, refused, malformed, failed (to be shown again) or given up.",
    ["outcome"],
    registry=REGISTRY,
)
SQS_TICKETS = Counter(
    "sqs_tickets", "Tickets of jobs on SQS: sent, sent again, taken, or void.", ["outcome"], registry=REGISTRY
)

# engine/credentials
CREDENTIALS_REFUSED = Counter(
    "credentials_refused", "Secrets that the upstream refused and that are used no more.", registry=REGISTRY
)
CREDENTIAL_TOKENS_ISSUED = Counter(
    "credential_tokens_issued", "Tokens issued to installations of apps.", registry=REGISTRY
)

# engine/upstream
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
