"""The page of metrics: the exported name of each, its labels and its meaning."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from prometheus_client.metrics import MetricWrapperBase

from reference.markdown import MADE, code, page, prose, table
from tidegate.core.plugins import all_metrics
from tidegate.core.telemetry import metrics

_HEAD = f"""# Metrics

{MADE}

They are at `/metrics` of every process that answers over HTTP, in the format of Prometheus; how to use them is in
[run it as a service](../guides/http.md#health-and-metrics).

A counter has `_total` at its end. A histogram is three: `_bucket` (with the label `le`), `_sum` and `_count`.
Counters and histograms are those of one process, so add them up; a gauge that tells of the whole deployment is the
same in every process, so take the greatest. NaN means that it could not be found out.

A process exports the metrics of a system if it opened the system (setting `systems`).
"""


def describe_figures() -> str:
    """The page, as Markdown."""
    lines = [_HEAD]
    for module in (metrics, *all_metrics().values()):
        for section, found in _sections(module):
            lines += ["", f"## {section}", ""]
            lines += table(["metric", "type", "labels", "meaning"], map(_row, found))
    return page(lines)


def _sections(module: ModuleType) -> Iterator[tuple[str, list[Any]]]:
    """The metrics of a module by the comment above them in the code; those without a comment by the module's folder."""
    section, found = module.__name__.removeprefix("tidegate.").removesuffix(".metrics").replace(".", "/"), list[Any]()
    for line in inspect.getsource(module).splitlines():
        if comment := re.match(r"# (\S[^:]*)", line):
            if found:
                yield section, found
            section, found = comment[1].strip(), []
        elif name := re.match(r"([A-Z][A-Z0-9_]*) = ", line):
            metric = getattr(module, name[1])
            found += [metric] if isinstance(metric, MetricWrapperBase) else []
    if found:
        yield section, found


def _row(metric: Any) -> list[str]:
    [family] = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    buckets = [f"{edge:g}" for edge in getattr(metric, "_upper_bounds", []) if edge != float("inf")]
    edges = f" Buckets end at {', '.join(buckets)}." if buckets else ""
    return [code(name), family.type, ", ".join(map(code, metric._labelnames)), prose(family.documentation) + edges]
