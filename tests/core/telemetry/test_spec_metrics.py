"""Every metric of the specifications is told, under its name and with its labels, by a process that really runs."""

from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.http.processes import started

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

OF_COLLECTION: dict[str, tuple[str, set[str]]] = {
    "collection_runs_active": (GAUGE, set()),
    "page_jobs_pending": (GAUGE, set()),
    "page_jobs_failed_rate": (GAUGE, set()),
    "job_processing_time": (HISTOGRAM, {"kind"}),
    "delayed_queue_size": (GAUGE, {"queue"}),
    "stream_pending_count": (GAUGE, {"stream"}),
    "stream_consumer_lag": (GAUGE, {"stream"}),
    "rate_limit_tokens_blocked": (GAUGE, {"gate"}),
    "xautoclaim_recovered": (COUNTER, {"stream"}),
    "stats_retry_queue_size": (GAUGE, set()),
    "scheduler_sleep_duration": (HISTOGRAM, set()),
    "scheduler_leader_active": (GAUGE, set()),
}
OF_SNAPSHOTS: dict[str, tuple[str, set[str]]] = {
    "rate_limiter_acquired": (COUNTER, {"priority"}),
    "rate_limiter_rejected": (COUNTER, {"priority"}),
    "rate_limiter_rps": (GAUGE, set()),
    "consumer_lag": (GAUGE, {"topic", "group"}),
    "producer_send_failed": (COUNTER, set()),
    "dedup_coalesce_hit": (COUNTER, set()),
    "dedup_upgrade": (COUNTER, set()),
    "dedup_lock_conflict": (COUNTER, set()),
    "update_process_duration_seconds": (HISTOGRAM, {"priority"}),
    "update_process_error": (COUNTER, {"reason"}),
    "obsolete_event_skipped": (COUNTER, set()),
    "db_circuit_breaker_state": (GAUGE, set()),
    "db_upsert_duration_seconds": (HISTOGRAM, set()),
    "redis_circuit_breaker_state": (GAUGE, set()),
    "redis_command_duration_seconds": (HISTOGRAM, set()),
    "dlq_message_count": (GAUGE, set()),
}
OF_THE_SPECIFICATIONS = OF_COLLECTION | OF_SNAPSHOTS
"""Name, without the `_total` that every counter gets; kind; labels."""
NEEDS_WORK = {"job_processing_time"}
"""Told for a kind of job when the first of its jobs has ended."""
SUFFIX = {COUNTER: "_total", GAUGE: "", HISTOGRAM: "_count"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `tidegate up`, just started, tells at /metrics."""
    folder: Path = tmp_path_factory.mktemp("up")
    game = {"TIDEGATE_SNAPSHOTS__GAME__URL": "http://127.0.0.1:1", "TIDEGATE_SNAPSHOTS__GAME__API_KEY": "k"}
    async with (
        started(folder, "up", "--port", "0", **game) as process,
        aiohttp.ClientSession() as session,
        session.get(f"{process.url}/metrics") as answer,
    ):
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return await answer.text()


@pytest.fixture(scope="module")
def samples(told: str) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(told):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


@pytest.mark.parametrize("name", OF_THE_SPECIFICATIONS)
def test_every_metric_of_the_specification_is_exported(name: str, told: str, samples: dict[str, list[Sample]]):
    kind, labels = OF_THE_SPECIFICATIONS[name]
    exposed = f"{name}_total" if kind == COUNTER else name
    found = samples.get(f"{name}{SUFFIX[kind]}", [])

    assert f"\n# TYPE {exposed} {kind}\n" in told
    assert found or name in NEEDS_WORK, "an alert sees no first increase of what is not told from the beginning"
    assert [sample.labels for sample in found if sample.labels.keys() != labels] == []


def test_labels_have_the_values_of_the_specification(samples: dict[str, list[Sample]]):
    def values(name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in samples[name]}

    assert values("rate_limiter_acquired_total", "priority") == {"high", "low"}
    assert values("rate_limiter_rejected_total", "priority") == {"high", "low"}
    assert values("consumer_lag", "topic") == {"update-priority-high", "update-priority-low"}
    assert values("consumer_lag", "group") == {"high-worker", "low-worker"}
    assert values("update_process_error_total", "reason") >= {"UPSTREAM_4XX", "UPSTREAM_5XX", "PARSE_ERROR"}


def test_every_metrics_source_is_collected_without_an_error(samples: dict[str, list[Sample]]):
    sources = {sample.labels["source"]: sample.value for sample in samples["metrics_source_up"]}

    assert {name for name, value in sources.items() if value != 1} == set()
    assert sources.keys() == {
        "database",
        "outbox",
        "streams",
        "gate",
        "campaigns",
        "campaign letters",
        "crawl",
        "snapshot lag",
        "snapshot dead letters",
        "snapshot calls",
    }
