"""The page of events: of the log, of event streams over HTTP, and of the outbox."""

import ast
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import tidegate
from reference.markdown import MADE, code, page, prose, table
from reference.schemas import in_words
from tidegate.core.telemetry.catalogue import EVENTS
from tidegate.engine.run_counters import RUN_ENDED

_SOURCE = Path(tidegate.__file__).parent
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_HEAD = f"""# Events

{MADE}

## In the log

Every line of the log is one of these events, with facts as fields beside it; `TIDEGATE_LOG__FORMAT=json` writes them
for machines, `TIDEGATE_LOG__LEVEL` says from which level on. Those that begin with "Alert:" need somebody; an alert
rule or a search for them is worth its while. Secrets are in none of them.
"""
_STREAMS = """## Over HTTP

Server-sent events, `text/event-stream`. Each has its name in `event` and JSON in `data`; a client that lost the
connection connects again and is told how things stand.
"""
_OUTBOX = """## In the outbox

Events that are committed together with rows, and handled afterwards, at least once, in order per key. Those of a
program that embeds the parts, or of a board of [rankings](../guides/ranking.md), have the names that it gives them.
"""


def describe_events(document: Mapping[str, Any]) -> str:
    """The page, as Markdown; `document` is the server's OpenAPI document."""
    levels, lines = _levels(), [_HEAD]
    for part, names in groupby(EVENTS, key=lambda name: name.partition(".")[0]):
        lines += ["", f"### {part}", ""]
        rows = ([code(name), " or ".join(levels.get(name, [])), prose(EVENTS[name])] for name in names)
        lines += table(["event", "level", "meaning"], rows)
    lines += [_STREAMS, *table(["address", "event", "what it holds"], _streams(document))]
    lines += [_OUTBOX, *table(["kind", "key", "meaning"], OUTBOX_KINDS)]
    return page(lines)


OUTBOX_KINDS = [
    [
        code(f"{RUN_ENDED}.<source>"),
        "`run:<id>`",
        "A run is over. Its statistics are computed; where that fails for good, the event is a dead letter.",
    ]
]


def _streams(document: Mapping[str, Any]) -> Iterator[list[str]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for answer in operation["responses"].values():
                schema = answer.get("content", {}).get("text/event-stream", {}).get("schema")
                if schema is not None:
                    names, holds = _topics(operation), "what the topic's own address answers"
                    if not names:
                        names = schema["properties"]["event"]["enum"]
                        holds = in_words(schema["properties"]["data"]["contentSchema"]).replace("(#", "(http.md#")
                    yield [code(f"{method.upper()} {path}"), ", ".join(map(code, names)), holds]


def _topics(operation: Mapping[str, Any]) -> list[str]:
    """Where callers choose topics, the events are named after those; systems add topics."""
    return ["<topic>"] if any(each["name"] == "topic" for each in operation.get("parameters", [])) else []


def _levels() -> dict[str, list[str]]:
    """At which levels each event is logged, as the code says."""
    found: dict[str, set[str]] = {}
    for module in _SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS:
                level = "error" if node.func.attr == "exception" else node.func.attr
                for name in _texts(node.args[:1]):
                    found.setdefault(name, set()).add(level)
    return {name: sorted(levels, key=_LEVELS.index) for name, levels in found.items()}


def _texts(arguments: list[ast.expr]) -> Iterator[str]:
    """The name of the event, or both where one of two is logged."""
    for argument in arguments:
        for node in ast.walk(argument):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
