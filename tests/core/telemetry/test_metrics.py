"""The metrics can be read by Prometheus, under the names that alert rules know."""

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidegate.core.plugins import all_metrics
from tidegate.core.telemetry import metrics

all_metrics()  # registers the metrics of all systems
FAMILIES = {family.name: family for family in metrics.REGISTRY.collect()}


def test_the_exposition_can_be_parsed():
    names = {family.name for family in text_string_to_metric_families(metrics.exposition().decode())}

    assert names >= {"delayed_queue_size", "scheduler_leader_active", "outbox_depth"}


@pytest.mark.parametrize(
    "name",
    [
        "delayed_queue_size", "stream_pending_count", "stream_consumer_lag", "rate_limit_tokens_blocked",
        "xautoclaim_recovered", "scheduler_sleep_duration", "scheduler_leader_active", "dedup_coalesce_hit",
    ],
)  # fmt: skip
def test_the_metric_names_used_by_alert_rules_exist(name: str):
    assert name in FAMILIES


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_every_metric_has_a_description(family: Metric):
    assert family.documentation.endswith(".")


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES.values() if each.type == "histogram"], ids=lambda each: each.name
)
def test_every_duration_metric_names_its_unit(family: Metric):
    assert "in seconds" in family.documentation
