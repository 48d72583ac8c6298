"""The dashboards are those that the code makes, can be read by Grafana, and ask for figures that there are.

Grafana itself is not run here: what is checked is the structure that it documents.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from deploy.grafana.dashboards import all_dashboards

from tests.deploy.promql import faults_of, metrics_of, told
from tests.deploy.rules import ROOT, RUNBOOKS, alerts, read_yaml, recorded, rules

GRAFANA = ROOT / "deploy" / "grafana"
FILES = sorted(GRAFANA.glob("*.json"))
NAMES = ["collection", "crawl", "overview", "runtime", "snapshots", "visitors"]
UNITS = {"short", "s", "percentunit", "ops", "reqps", "bytes"}
KINDS = {"row", "stat", "timeseries", "state-timeline", "table"}
OPTIONS = {
    "stat": {"colorMode", "graphMode", "justifyMode", "orientation", "reduceOptions", "textMode", "wideLayout"},
    "timeseries": {"legend", "tooltip"},
    "state-timeline": {"alignValue", "legend", "mergeValues", "rowHeight", "showValue", "tooltip"},
    "table": {"cellHeight", "footer", "showHeader"},
}
OF_A_PANEL = {"datasource", "description", "fieldConfig", "gridPos", "id", "options", "targets", "title", "type"}
OF_A_TARGET = {"datasource", "editorMode", "expr", "format", "instant", "legendFormat", "range", "refId"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ALERTS = {"ALERTS": {"alertname", "alertstate", "severity", "system"}}
"""What Prometheus tells of its own rules."""


@cache
def read(path: Path) -> Any:
    return json.loads(path.read_text())


def panels_of(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in read(path)["panels"] if panel["type"] != "row"]


ALL_PANELS = [pytest.param(panel, id=f"{path.stem}: {panel['title']}") for path in FILES for panel in panels_of(path)]


def test_the_dashboard_files_equal_the_generated_ones():
    """`make grafana` writes them anew."""
    assert {path.name: path.read_text() for path in FILES} == all_dashboards()
    assert [path.stem for path in FILES] == NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_has_the_fields_that_grafana_requires(path: Path):
    whole = read(path)

    assert (whole["uid"], whole["title"]) == (f"tidegate-{path.stem}", f"Tidegate: {path.stem}")
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", whole["uid"])
    assert (whole["id"], whole["schemaVersion"], whole["tags"]) == (None, 39, ["tidegate"])
    assert [variable["name"] for variable in whole["templating"]["list"]] == ["datasource", "deployment"]
    assert all(re.fullmatch(r"now(-\d+[hmd])?", whole["time"][end]) for end in ("from", "to"))
    assert set(re.findall(r"\$\{?([a-zA-Z]+)", path.read_text())) <= {"datasource", "deployment"}, (
        "a variable is unknown"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panel_ids_are_unique_and_panels_do_not_overlap(path: Path):
    panels = read(path)["panels"]
    covered: list[tuple[int, int]] = []
    for place in (panel["gridPos"] for panel in panels):
        assert place.keys() == {"h", "w", "x", "y"}
        assert place["x"] + place["w"] <= 24
        covered += [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]
    titles = [panel["title"] for panel in panels]

    assert len(set(covered)) == len(covered)
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert len(set(titles)) == len(titles)
    assert {panel["type"] for panel in panels} <= KINDS


@pytest.mark.parametrize("panel", ALL_PANELS)
def test_a_panel_has_the_fields_that_grafana_requires(panel: dict[str, Any]):
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults["thresholds"]["steps"]

    assert panel.keys() == OF_A_PANEL
    assert panel["options"].keys() == OPTIONS[panel["type"]]
    assert panel["datasource"] == SOURCE
    assert defaults["unit"] in UNITS
    assert steps[0]["value"] is None
    assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])
    assert all(step["color"] in {"green", "orange", "red"} for step in steps)
    assert [target["refId"] for target in panel["targets"]] == [*"ABCD"][: len(panel["targets"])]
    for target in panel["targets"]:
        assert target.keys() == OF_A_TARGET
        assert target["datasource"] == SOURCE
        assert target["instant"] != target["range"]


@pytest.mark.parametrize("panel", ALL_PANELS)
def test_a_panel_queries_existing_metrics(panel: dict[str, Any]):
    for target in panel["targets"]:
        expression, name = target["expr"], target["legendFormat"]
        labels = set(re.findall(r"{{(\w+)}}", name))
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}

        assert metrics_of(expression)
        assert faults_of(expression, recorded() | ALERTS) == []
        assert 'deployment=~"$deployment"' in expression
        assert labels <= (grouped or {"instance"}), "the name of a line has a label that the figure lost"


def test_every_alert_is_on_a_panel_with_its_threshold_and_colour():
    colours = {"warning": "orange", "critical": "red"}
    missing: list[str] = []
    for alert in alerts().values():
        named = [panel.values[0] for panel in ALL_PANELS if f"docs/runbooks/{alert.name}.md" in str(panel.values)]
        step = {"color": colours[alert.labels["severity"]], "value": alert.limit}
        below = {"color": step["color"], "value": None}
        for panel in named:
            steps: list[Any] = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]  # pyright: ignore
            fires_below = re.search(rf"< {alert.limit:g}\b", alert.expression)
            assert (below if fires_below else step) in steps, f"{alert.name} on {panel!r}"
        missing += [] if named else [alert.name]

    assert missing == []


def test_every_metric_is_on_a_panel():
    """Each metric of ours is on some panel, or in some rule."""
    asked = {name for panel in ALL_PANELS for name in re.findall(r"[a-z_:]+", str(panel.values))}
    asked |= {name for rule in rules() for name in metrics_of(rule["expr"])}
    families = {re.sub(r"_(total|bucket|sum|count|info)$", "", name) for name in told()}

    forgotten = [name for name in families if not any(each.startswith(name) for each in asked)]
    assert sorted(forgotten) == ["process_virtual_memory_bytes"]


def test_panels_named_in_runbooks_exist():
    books = {page.stem: page.read_text().replace("\n", " ") for page in RUNBOOKS.glob("*.md") if page.stem != "README"}
    titles = {panel["title"] for path in FILES for panel in panels_of(path)}
    astray = [
        (alert, path.stem)
        for alert, text in books.items()
        for path in FILES
        if f"in Grafana: *Tidegate: {path.stem}*" in text and f"docs/runbooks/{alert}.md" not in path.read_text()
    ]

    assert [text[:40] for text in books.values() if not re.search(r"in Grafana: \*Tidegate: [a-z]+\*", text)] == []
    assert {title for text in books.values() for title in re.findall(r"panel \*([^*]+)\*", text)} - titles == set()
    assert astray == [], "the alert is not on the dashboard that its runbook names"


def test_grafana_is_provisioned_with_data_source_and_dashboards():
    provisioning = GRAFANA / "provisioning"
    (source,) = read_yaml(provisioning / "datasources" / "prometheus.yaml")["datasources"]
    (provider,) = read_yaml(provisioning / "dashboards" / "tidegate.yaml")["providers"]

    assert (source["type"], source["access"], source["isDefault"]) == ("prometheus", "proxy", True)
    assert (provider["type"], provider["folder"]) == ("file", "Tidegate")
    assert provider["options"]["path"]
