"""The alerts are those of the specifications, fire when they should, and speak of figures that there are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.promql import faults_of, labels_of, metrics_of
from tests.deploy.rules import PROMETHEUS, RUNBOOKS, Alert, alerts, cases, recorded, rules
from tests.servers.registry import record_used, skip_or_fail
from tidegate.core.telemetry.catalogue import EVENTS

OF_THE_SPECIFICATIONS = {
    "TidegateActiveRunsHigh": (100, None, "warning"),
    "TidegateJobBacklogHigh": (1000, None, "warning"),
    "TidegateJobFailureRateHigh": (0.1, None, "warning"),
    "TidegateJobDurationHigh": (30, None, "warning"),
    "TidegateDelayedJobsHigh": (500, "10m", "warning"),
    "TidegatePendingMessagesHigh": (100, "5m", "warning"),
    "TidegateStreamLagHigh": (50, None, "warning"),
    "TidegateBlockedCredentialsHigh": (10, "5m", "warning"),
    "TidegateTakeoverRateHigh": (10, None, "warning"),
    "TidegateStatisticsFailing": (20, "15m", "warning"),
    "TidegateNoLeader": (1, "2m", "critical"),
    "TidegateRateLimitExceeded": (500, None, "critical"),
    "TidegateSnapshotLagHigh": (1000, None, "warning"),
    "TidegateSnapshotLagCritical": (5000, None, "critical"),
    "TidegateSnapshotDeadLettersHigh": (100, None, "critical"),
    "TidegateValkeyBreakerOpen": (2, None, "critical"),
    "TidegateDatabaseBreakerOpen": (2, None, "critical"),
    "TidegateRefreshDurationHigh": (3, None, "warning"),
}
"""Threshold, duration and severity, as they stand there."""


@pytest.fixture(scope="module")
def promtool() -> str:
    """The checker that comes with Prometheus."""
    found = shutil.which("promtool")
    if found is None:
        skip_or_fail("promtool", "it is not installed; `make services` does that")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    record_used("promtool", (version.stdout or version.stderr).split()[2])
    return found


def check(promtool: str, *arguments: str, folder: Path = PROMETHEUS) -> str:
    """What it says; it has to be content."""
    done = subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_valid(promtool: str):
    assert f"{len(rules())} rules found" in check(promtool, "check", "rules", "alerts.yml")


def test_the_configuration_is_valid_and_loads_the_rules(promtool: str, tmp_path: Path):
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path)
    (tmp_path / "tidegate-key").write_text("a key")

    said = check(promtool, "check", "config", "prometheus.yml", folder=tmp_path)

    assert "SUCCESS: 1 rule files found" in said
    assert f"{len(rules())} rules found" in said


@pytest.mark.full
def test_every_test_case_of_every_alert_passes(promtool: str):
    assert "SUCCESS" in check(promtool, "test", "rules", "alerts_test.yml")


@pytest.mark.parametrize("name", OF_THE_SPECIFICATIONS)
def test_alerts_of_the_specification_have_its_thresholds_and_durations(name: str):
    alert = alerts()[name]

    assert (alert.limit, alert.lasting, alert.labels["severity"]) == OF_THE_SPECIFICATIONS[name]


@pytest.mark.parametrize("alert", alerts().values(), ids=alerts().keys())
def test_an_alert_has_a_firing_and_a_silent_test_case(alert: Alert):
    asked = [each for case in cases() for each in case["alert_rule_test"] if each["alertname"] == alert.name]
    fires = [told for each in asked for told in each["exp_alerts"]]

    assert [told["exp_annotations"]["runbook_url"] for told in fires][:1] == [alert.annotations["runbook_url"]]
    assert [each for each in asked if not each["exp_alerts"]], "it is never seen quiet"


@pytest.mark.parametrize("alert", alerts().values(), ids=alerts().keys())
def test_an_alert_has_summary_value_and_runbook_link(alert: Alert):
    assert set(alert.annotations) == {"summary", "description", "runbook_url"}
    assert "$value" in alert.annotations["description"]
    assert alert.annotations["description"].endswith(".")
    assert alert.annotations["runbook_url"] == f"docs/runbooks/{alert.name}.md"
    assert alert.labels["severity"] in {"critical", "warning"}
    assert alert.labels.keys().isdisjoint(labels_of(alert.expression)), (
        "a label of the rule would hide one of the figure"
    )
    assert set(re.findall(r"`([a-z_]+\.[a-z_]+)`", alert.annotations["description"])) <= EVENTS.keys()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_queries_existing_metrics(rule: dict[str, str]):
    assert metrics_of(rule["expr"])
    assert faults_of(rule["expr"], recorded()) == []


@pytest.mark.parametrize("alert", alerts().values(), ids=alerts().keys())
def test_an_alert_names_the_deployment(alert: Alert):
    """Each aggregation keeps it; what is not aggregated has all its labels."""
    groups = re.findall(r"\b(?:by|on) \(([^)]*)\)", alert.expression)
    aggregations = re.findall(r"\b(?:sum|max|min)\b", alert.expression)

    assert [group for group in groups if "deployment" not in group] == []
    assert len(groups) >= len(aggregations), "one is without `by`"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert():
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}

    assert pages == alerts().keys()


def test_the_runbook_index_lists_every_alert_with_severity_and_summary():
    index = (RUNBOOKS / "README.md").read_text()

    missing = [
        alert.name
        for alert in alerts().values()
        if not re.search(
            rf"^\| \[{alert.name}\]\({alert.name}\.md\) \| {alert.labels['severity']} \| .+ \|$", index, re.M
        )
    ]
    assert missing == []


def test_undefined_metric_names_are_found():
    """The checks above would say nothing if they understood nothing."""
    expression = 'sum by (deployment, room) (rate(page_jobs_lost_total{kind="x"}[5m])) / max(outbox_dead) > 3'

    assert metrics_of(expression) == {"page_jobs_lost_total", "outbox_dead"}
    assert faults_of(expression, {}) == [
        "page_jobs_lost_total: nobody tells it",
        "kind: none of them has it",
        "room: none of them has it",
    ]
