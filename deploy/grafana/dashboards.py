"""What the dashboards show. `make grafana` writes them beside this file, as JSON that Grafana reads at its start.

The runbooks speak of panels by the titles that they have here.
"""

import json
from pathlib import Path

from deploy.grafana.panels import Json, Panel, Row, dashboard
from deploy.grafana.pictures import level, parts, rate, rate_of, spans, stat, states, within

FOLDER = Path(__file__).parent
_BREAKER = {0: ("closed", "green"), 1: ("trying", "orange"), 2: ("open", "red")}
_LEADS = {0: ("follows", "blue"), 1: ("leads", "green")}
_UP = {0: ("down", "red"), 1: ("up", "green")}
_TOLD = {0: ("missing", "red"), 1: ("told", "green")}
_PROCESS = 'job="tidegate",@'
_OF_COLLECTION = 'stream=~"jobs|alarms",'
_FAILED = 'status=~"5xx|failed",'


def overview() -> Json:
    """The first page to open."""
    letters = [
        stat("Dead letters: snapshots", "max(dlq_message_count{@})"),
        stat("Dead letters: outbox", "max(outbox_dead{@})", alerts=["TidegateOutboxDeadLetters"]),
        stat(
            "Dead letters: streams",
            "sum(max by (stream) (stream_dead_letters{@}))",
            alerts=["TidegateStreamDeadLetters"],
        ),
        stat("Dead letters: campaigns", "max(campaign_dead_letters{@})", alerts=["TidegateCampaignDeadLetters"]),
        stat("Dead letters: crawls", "max(crawl_raws_dead{@})", alerts=["TidegateCrawlDeadLetters"]),
        stat(
            "Blocked tokens",
            "sum(max by (gate) (rate_limit_tokens_blocked{@}))",
            alerts=["TidegateBlockedCredentialsHigh"],
        ),
    ]
    now = [
        stat("Processes that answer", f"sum(up{{{_PROCESS}}})"),
        stat("Leaders", "sum(scheduler_leader_active{@})", alerts=["TidegateNoLeader"]),
        stat("Active runs", "max(collection_runs_active{@})", alerts=["TidegateActiveRunsHigh"]),
        stat("Jobs that have not ended", "max(page_jobs_pending{@})", alerts=["TidegateJobBacklogHigh"]),
        stat(
            "Jobs that fail", "max(page_jobs_failed_rate{@})", unit="percentunit", alerts=["TidegateJobFailureRateHigh"]
        ),
        stat("Requests per second", f"sum({rate_of('http_requests_total', 'route')})", unit="reqps"),
    ]
    firing = Panel(
        "Alerts that fire",
        [('ALERTS{alertstate="firing",system="tidegate",@}', "")],
        kind="table",
        width=12,
        height=9,
        note="What to do about each is in docs/runbooks.",
    )
    who_is_up, who_leads = f"max by (instance) (up{{{_PROCESS}}})", "max by (instance) (scheduler_leader_active{@})"
    told = "min by (source) (metrics_source_up{@})"
    processes = [
        firing,
        states("Processes", who_is_up, "instance", _UP, width=6, height=9, alerts=["TidegateProcessDown"]),
        states("Leader", who_leads, "instance", _LEADS, width=6, height=9, alerts=["TidegateMultipleLeaders"]),
    ]
    work = [
        rate("Jobs that ended, per second", "job_processing_time_count", "kind", stacked=True),
        rate("Calls to upstreams, per second", "upstream_requests_total", "host", stacked=True),
        states("Figures", told, "source", _TOLD, alerts=["TidegateMetricsMissing"]),
    ]
    rows = [Row("Now", [*now, *letters]), Row("Alerts and processes", processes), Row("Work", work)]
    return dashboard("overview", "What runs, what waits, what failed. The other dashboards have the details.", rows)


def collection() -> Json:
    """Runs, jobs, quotas, schedules, upstreams."""
    jobs = [
        level("Active runs", "collection_runs_active", alerts=["TidegateActiveRunsHigh"]),
        level("Jobs that have not ended", "page_jobs_pending", alerts=["TidegateJobBacklogHigh"]),
        level("Jobs that fail", "page_jobs_failed_rate", unit="percentunit", alerts=["TidegateJobFailureRateHigh"]),
        rate("Jobs that ended, per second", "job_processing_time_count", "kind", stacked=True),
        spans("Duration of jobs", "job_processing_time", alerts=["TidegateJobDurationHigh"]),
        within("Items skipped, per hour", "collect_items_skipped_total", "1h", "source, kind"),
        within(
            "Results that were refused",
            "collect_results_refused_total",
            "15m",
            "fate",
            alerts=["TidegateResultWriteFailing"],
        ),
    ]
    quotas = [
        level("Blocked tokens", "rate_limit_tokens_blocked", "gate", alerts=["TidegateBlockedCredentialsHigh"]),
        level(
            "Longest block",
            "rate_limit_longest_block_seconds",
            "gate",
            unit="s",
            alerts=["TidegateCredentialBlockedLong"],
        ),
        level("Jobs that wait for a permit", "gate_waiting", "gate"),
        rate("Permits per second", "gate_permits_total", "gate"),
        within(
            "Refused credentials, per hour", "credentials_refused_total", "1h", alerts=["TidegateCredentialRefused"]
        ),
        within("Tokens issued to apps, per hour", "credential_tokens_issued_total", "1h"),
    ]
    taken_over = "sum by (stream) (rate(xautoclaim_recovered_total{@}[5m])) * 60"
    held, waiting = "stream_pending_count", "stream_consumer_lag"
    streams = [
        level("Messages with workers", held, "stream", where=_OF_COLLECTION, alerts=["TidegatePendingMessagesHigh"]),
        level(
            "Messages that wait for a worker", waiting, "stream", where=_OF_COLLECTION, alerts=["TidegateStreamLagHigh"]
        ),
        Panel("Messages taken over, per minute", [(taken_over, "{{stream}}")], alerts=["TidegateTakeoverRateHigh"]),
        level("Delayed", "delayed_queue_size", "queue", stacked=True, alerts=["TidegateDelayedJobsHigh"]),
        level("Statistics that wait for another try", "stats_retry_queue_size", alerts=["TidegateStatisticsFailing"]),
        within(
            "Schedules that fired, per hour",
            "schedules_fired_total",
            "1h",
            "outcome",
            alerts=["TidegateScheduleFailing"],
        ),
    ]
    calls, failed = "upstream_requests_total", "Calls without a good answer"
    share = f"sum by (host) (rate({calls}{{{_FAILED}@}}[5m])) / sum by (host) (rate({calls}{{@}}[5m]))"
    upstreams = [
        rate("Calls", calls, "host, status", width=12, stacked=True),
        spans("How long a call takes", "upstream_request_seconds", "host", width=12),
        Panel(failed, [(share, "{{host}}")], unit="percentunit", alerts=["TidegateUpstreamErrorRateHigh"]),
        rate("Triggers by SQS, per second", "sqs_triggers_total", "outcome"),
        rate("Tickets by SQS, per second", "sqs_tickets_total", "outcome"),
    ]
    webhooks = [
        rate("Deliveries of webhooks, per second", "github_webhook_deliveries_total", "event, result", stacked=True),
        rate("Documents changed by webhooks, per second", "github_webhook_documents_total", "event", stacked=True),
        spans("Time to apply a delivery", "github_webhook_apply_seconds", "deployment"),
    ]
    rows = [Row("Runs and jobs", jobs), Row("Quotas", quotas), Row("Streams and delays", streams)]
    note = "Runs and their jobs, the gate with its tokens, the streams, the upstreams, and webhooks."
    return dashboard("collection", note, [*rows, Row("Upstreams", upstreams), Row("Webhooks", webhooks)])


def snapshots() -> Json:
    """Calls against the limit, lag, reads."""
    high, low = 'topic="update-priority-high",', 'topic="update-priority-low",'
    behind = ["TidegateSnapshotLagHigh", "TidegateSnapshotLagCritical"]
    granted = rate_of("rate_limiter_acquired_total", "priority")
    peak = 'max(upstream_requests_peak{@,client="snapshots"})'
    calls = [
        (peak, "sent by one process, peak of the last minute"),
        ("max(rate_limiter_rps{@})", "permits of the last second"),
        (granted, "{{priority}} permits, mean"),
    ]
    repeated = [
        ("dedup_coalesce_hit_total", "answered by work under way"),
        ("dedup_upgrade_total", "made urgent"),
        ("obsolete_event_skipped_total", "skipped as obsolete"),
        ("dedup_lock_conflict_total", "lock in other hands"),
    ]
    of_valkey, of_database = (f"max by (instance) ({name}_circuit_breaker_state{{@}})" for name in ("redis", "db"))
    slow, dying = "deployment_priority:update_process_duration_seconds:p95_5m", "deployment:dlq_messages:increase1h"
    limit = [
        Panel("Calls per second", calls, unit="reqps", width=12, alerts=["TidegateRateLimitExceeded"]),
        rate("Refused by the limiter, per second", "rate_limiter_rejected_total", "priority", width=6),
        rate("Asked for by the clock, per second", "prefetch_asked_total", "outcome", width=6),
    ]
    refreshes = [
        level("Urgent refreshes that were not begun", "consumer_lag", "group", where=high, alerts=behind),
        level("Refreshes by the clock that were not begun", "consumer_lag", "group", where=low),
        level("How long 95 of 100 refreshes take", slow, "priority", unit="s", alerts=["TidegateRefreshDurationHigh"]),
        rate("Faults, per second", "update_process_error_total", "reason"),
        level("Became dead letters within an hour", dying, alerts=["TidegateSnapshotDeadLettersHigh"]),
        rate("Could not be published", "producer_send_failed_total", "deployment", alerts=["TidegatePublishFailing"]),
        Panel("Repeated requests", [(rate_of(metric, "deployment"), name) for metric, name in repeated], unit="ops"),
        spans("Writes of batches", "db_upsert_duration_seconds"),
        spans("Upstream", "upstream_request_seconds"),
    ]
    reads = [
        rate("Reads", "snapshot_reads_total", "found", unit="reqps", stacked=True),
        states(
            "CircuitBreaker of the Valkey server", of_valkey, "instance", _BREAKER, alerts=["TidegateValkeyBreakerOpen"]
        ),
        states(
            "CircuitBreaker of the database", of_database, "instance", _BREAKER, alerts=["TidegateDatabaseBreakerOpen"]
        ),
        level("Dead letters", "dlq_message_count"),
        rate("Refused by an open breaker, per second", "circuit_breaker_refused_total", "breaker"),
        rate("Moved to the archive, per second", "archive_entries_moved_total", "deployment"),
    ]
    rows = [Row("The limit", limit), Row("Refreshes", refreshes), Row("Reads and servers", reads)]
    return dashboard("snapshots", "Use of the limit, waiting refreshes, durations and failures.", rows)


def visitors() -> Json:
    """Rooms, rankings, campaigns."""
    back, at_work = 'outcome="rolled_back",', "max by (deployment) (campaigns_active{@})"
    hands = [
        (at_work, "campaigns"),
        ("sum(campaign_consumer_pools{@})", "consumer pools"),
        ("sum(campaign_consumers{@})", "consumers"),
    ]
    rooms = [
        level("In line", "room_waiting", "room"),
        rate("Admitted, per second", "room_admitted_total", "room"),
        within("Put back in line", "room_ended_total", "10m", "room", where=back, alerts=["TidegateRoomRollbacks"]),
        rate("Stays that ended, per second", "room_ended_total", "outcome", stacked=True),
        rate("Refused for too many joins from one address, per second", "room_throttled_total", "deployment"),
        parts("Open event streams of places", "room_watchers", "room"),
    ]
    rankings = [
        rate("Events, per second", "ranking_events_total", "board, outcome"),
        within("Rankings answered empty", "ranking_reads_degraded_total", "5m", alerts=["TidegateRankingDegraded"]),
        within("Rebuilt boards, per hour", "ranking_rebuilt_total", "1h", "board"),
    ]
    campaigns = [
        rate("Entries, per second", "campaign_entries_total", "answer", stacked=True),
        rate("Decided, per second", "campaign_processed_total", "outcome", stacked=True),
        level("Not decided yet", "campaign_pending", alerts=["TidegateCampaignStalled"]),
        Panel("Campaigns at work", hands),
        level("Dead letters of campaigns", "campaign_dead_letters", alerts=["TidegateCampaignDeadLetters"]),
    ]
    rows = [Row("Waiting rooms", rooms), Row("Rankings", rankings), Row("Campaigns", campaigns)]
    return dashboard("visitors", "Waiting and admitted visitors, rankings, and issued entries of campaigns.", rows)


def crawl() -> Json:
    """Pages, stored answers, hosts."""
    panels = [
        rate("Pages, per second", "crawl_pages_total", "outcome", stacked=True),
        rate("Stored answers, per second", "crawl_raws_total", "outcome", stacked=True),
        level("Stored answers that wait", "crawl_raws_pending", alerts=["TidegateCrawlBacklogHigh"]),
        level("Dead letters of crawls", "crawl_raws_dead", alerts=["TidegateCrawlDeadLetters"]),
        rate("Calls by host", "upstream_requests_total", "host, status"),
        level("Resting identities and hosts", "rate_limit_tokens_blocked", "gate"),
    ]
    note = "Pages that were read, and what became of them. Jobs and limits of hosts are among those of collection."
    return dashboard("crawl", note, [Row("Crawl", panels)])


def runtime() -> Json:
    """Processes, outbox, timers, Valkey, HTTP."""
    cpu, memory = f"rate(process_cpu_seconds_total{{{_PROCESS}}}[$__rate_interval])", "process_resident_memory_bytes"
    files = f"process_open_fds{{{_PROCESS}}} / process_max_fds{{{_PROCESS}}}"
    starts, versions = (
        f"changes(process_start_time_seconds{{{_PROCESS}}}[30m])",
        "count by (version) (tidegate_build_info{@})",
    )
    processes = [
        Panel("CPU", [(cpu, "{{instance}}")], unit="percentunit", width=6),
        level("Memory", memory, "instance", where='job="tidegate",', unit="bytes", width=6),
        Panel(
            "Open files", [(files, "{{instance}}")], unit="percentunit", width=6, alerts=["TidegateFileDescriptorsLow"]
        ),
        Panel("Starts within 30 minutes", [(starts, "{{instance}}")], width=6, alerts=["TidegateProcessRestarting"]),
        within(
            "Fallen services", "service_restarts_total", "15m", "service", width=12, alerts=["TidegateServiceFailing"]
        ),
        Panel("Processes by version", [(versions, "{{version}}")], width=12),
    ]
    pending = [("max by (deployment) (outbox_pending{@})", "{{deployment}}"), ("max(outbox_depth{@})", "in hand")]
    outbox = [
        Panel("Events that wait", pending, alerts=["TidegateOutboxBacklogHigh"]),
        level("The oldest waits", "outbox_oldest_seconds", unit="s"),
        level("Events that are dead letters", "outbox_dead", alerts=["TidegateOutboxDeadLetters"]),
        rate("Delivered, per second", "outbox_delivered_total", "kind"),
        rate("To be tried again, per second", "outbox_retried_total", "kind"),
        within("Events that became dead letters, per hour", "outbox_dead_lettered_total", "1h", "kind"),
        within("Deleted by retention, per hour", "retention_deleted_total", "1h", "rule"),
        spans("Handling", "outbox_handling_seconds", "kind"),
        spans("From commit to delivery", "outbox_wait_seconds"),
        spans("Late timers", "timer_lateness_seconds", alerts=["TidegateTimersLate"]),
        rate("Timers that fired, per second", "timers_promoted_total", "queue"),
        spans("How long the timekeeper sleeps", "scheduler_sleep_duration"),
    ]
    valkey = [
        spans("Commands", "redis_command_duration_seconds"),
        rate("Commands per second", "redis_command_duration_seconds_count", "instance"),
        level("Depth of streams", "stream_depth", "stream"),
        level("Dead letters of streams", "stream_dead_letters", "stream", alerts=["TidegateStreamDeadLetters"]),
        within("Dead letters, per hour", "stream_dead_lettered_total", "1h", "stream"),
    ]
    errors = "deployment:http_requests:error_ratio_5m"
    refused = [("sum(increase(http_keys_refused_total{@}[5m]))", "wrong keys")]
    refused += [('sum(increase(http_logins_total{outcome="blocked",@}[5m]))', "logins kept out")]
    http = [
        rate("Requests", "http_requests_total", "route, status", unit="reqps", width=12),
        spans("How long an answer takes", "http_request_seconds", "route", width=12),
        level("Internal errors", errors, unit="percentunit", alerts=["TidegateServerErrorRateHigh"]),
        parts("Streams of events", "http_listeners", "instance"),
        Panel("Wrong keys within 5 minutes", refused, stacked=True, alerts=["TidegateLoginFailureRateHigh"]),
    ]
    rows = [Row("Processes", processes), Row("Outbox and timers", outbox), Row("Valkey", valkey), Row("HTTP", http)]
    return dashboard("runtime", "The runtime: processes, outbox, timers, the Valkey server, HTTP.", rows)


def all_dashboards() -> dict[str, str]:
    """The text of every file, by its name."""
    made = {make.__name__: make() for make in (overview, collection, snapshots, visitors, crawl, runtime)}
    return {f"{name}.json": json.dumps(each, indent=2) + "\n" for name, each in made.items()}


if __name__ == "__main__":
    for file, text in all_dashboards().items():
        (FOLDER / file).write_text(text)
