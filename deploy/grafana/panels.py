"""Building blocks of dashboards, as the JSON that Grafana reads.

An expression writes `@` for the deployment that is chosen at the top of the page: `outbox_dead{@}`. A panel that names
an alert has its threshold, read from the rules themselves, so that the line in the picture is where the alert fires.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

RULES = Path(__file__).parents[1] / "prometheus" / "alerts.yml"
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
_CHOSEN = 'deployment=~"$deployment"'
_LIMIT = re.compile(r"(>|<|==)\s*([\d.]+)$")
_COLOURS = {"warning": "orange", "critical": "red"}
_SCHEMA = 39
"""The schema version of Grafana 11; later versions migrate it automatically."""


@dataclass(frozen=True)
class Panel:
    """One picture. `queries` are expressions and the names of their lines."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    alerts: Sequence[str] = ()
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    note: str = ""
    stacked: bool = False
    words: Mapping[int, tuple[str, str]] | None = None
    """What values mean, and their colours: {0: ("closed", "green")}."""


@dataclass(frozen=True)
class Row:
    """A heading above panels."""

    title: str
    panels: Sequence[Panel]


def dashboard(name: str, note: str, rows: Sequence[Row]) -> Json:
    """A whole dashboard."""
    return {
        "annotations": {"list": [_firing()]},
        "description": note,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [
            {
                "asDropdown": False,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "tags": ["tidegate"],
                "targetBlank": False,
                "title": "Tidegate",
                "tooltip": "",
                "type": "dashboards",
                "url": "",
            }
        ],
        "panels": _laid_out(rows),
        "refresh": "30s",
        "schemaVersion": _SCHEMA,
        "tags": ["tidegate"],
        "templating": {"list": [_sources(), _deployments()]},
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": f"Tidegate: {name}",
        "uid": f"tidegate-{name}",
        "version": 1,
        "weekStart": "",
    }


@cache
def _rules() -> dict[str, Json]:
    groups: list[Json] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def limit_of(alert: str) -> tuple[str, float]:
    """How an alert compares, and with what."""
    expression: str = _rules()[alert]["expr"]
    found = _LIMIT.search(expression.partition(" or ")[0].partition(" unless ")[0])
    assert found, f"{alert} compares with nothing"
    return found[1], float(found[2])


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    """Panels from left to right, a new line where one does not fit; each row begins at the left."""
    panels: list[Json] = []
    y = 0
    for row in rows:
        panels.append(_heading(len(panels) + 1, row.title, y))
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            panels.append(_panel(len(panels) + 1, panel, place))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return panels


def _heading(number: int, title: str, y: int) -> Json:
    place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
    return {"collapsed": False, "gridPos": place, "id": number, "panels": [], "title": title, "type": "row"}


def _panel(number: int, panel: Panel, place: Json) -> Json:
    return {
        "datasource": SOURCE,
        "description": _described(panel),
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "gridPos": place,
        "id": number,
        "options": _OPTIONS[panel.kind],
        "targets": [_target(n, panel, *query) for n, query in enumerate(panel.queries)],
        "title": panel.title,
        "type": panel.kind,
    }


def _described(panel: Panel) -> str:
    told = [f"Alert {name}: docs/runbooks/{name}.md" for name in panel.alerts]
    return "\n".join(filter(None, [panel.note, *told]))


def _target(number: int, panel: Panel, expression: str, name: str) -> Json:
    is_instant = panel.kind in ("stat", "table")
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expression.replace("@", _CHOSEN),
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": is_instant,
        "legendFormat": name or "__auto",
        "range": not is_instant,
        "refId": chr(ord("A") + number),
    }


def _field(panel: Panel) -> Json:
    field: Json = {
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "mappings": _mappings(panel.words or {}),
        "thresholds": {"mode": "absolute", "steps": _steps(panel.alerts)},
        "unit": panel.unit,
    }
    if panel.kind == "timeseries":
        field |= {"custom": _lines(panel), "min": 0}
    if panel.kind == "state-timeline":
        field |= {"custom": {"fillOpacity": 70, "lineWidth": 0}}
    return field


def _steps(alerts: Sequence[str]) -> list[Json]:
    """Green, and from the threshold of each alert on its colour. Below it, where an alert fires below."""
    steps: list[Json] = [{"color": "green", "value": None}]
    for comparison, limit, colour in sorted((*limit_of(name), _colour(name)) for name in alerts):
        if comparison == "<":
            steps = [{"color": colour, "value": None}, {"color": "green", "value": limit}]
        else:
            steps.append({"color": colour, "value": limit})
    return steps


def _colour(alert: str) -> str:
    return _COLOURS[_rules()[alert]["labels"]["severity"]]


def _lines(panel: Panel) -> Json:
    return {
        "drawStyle": "line",
        "fillOpacity": 25 if panel.stacked else 8,
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        "thresholdsStyle": {"mode": "line" if panel.alerts else "off"},
    }


def _mappings(words: Mapping[int, tuple[str, str]]) -> list[Json]:
    if not words:
        return []
    told = {
        str(value): {"color": colour, "index": n, "text": word}
        for n, (value, (word, colour)) in enumerate(words.items())
    }
    return [{"options": told, "type": "value"}]


def _firing() -> Json:
    return {
        "datasource": SOURCE,
        "enable": True,
        "expr": 'ALERTS{alertstate="firing",system="tidegate"}',
        "iconColor": "red",
        "name": "Alerts",
        "step": "60s",
        "tagKeys": "severity",
        "textFormat": "",
        "titleFormat": "{{alertname}}",
    }


def _sources() -> Json:
    return {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Prometheus",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "type": "datasource",
    }


def _deployments() -> Json:
    query = "label_values(scheduler_leader_active, deployment)"
    return {
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": SOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": True,
        "label": "Deployment",
        "multi": True,
        "name": "deployment",
        "options": [],
        "query": {"qryType": 1, "query": query, "refId": "deployments"},
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }


_REDUCED: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_LEGEND: Json = {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True}
_OPTIONS: dict[str, Json] = {
    "timeseries": {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _REDUCED,
        "textMode": "auto",
        "wideLayout": True,
    },
    "state-timeline": {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    },
    "table": {
        "cellHeight": "sm",
        "footer": {"countRows": False, "fields": "", "reducer": ["sum"], "show": False},
        "showHeader": True,
    },
}
