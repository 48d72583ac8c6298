"""Reads exports back, without any of the code that wrote them."""

import csv
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

Row = dict[str, Any]

_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)')


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def entry_of(folder: Path, kind: str) -> dict[str, Any]:
    [entry] = [each for each in manifest_of(folder)["files"] if each["kind"] == kind]
    return entry


def read_rows(folder: Path, kind: str) -> list[Row]:
    """The rows of a file, each value as what its column is said to be; bodies decoded."""
    entry = entry_of(folder, kind)
    path = folder / entry["file"]
    types = {column["name"]: column["type"] for column in entry["columns"]}
    match path.suffix:
        case ".parquet":
            rows: list[Row] = pq.read_table(path).to_pylist()
        case ".csv":
            rows = [{name: _typed(types[name], field) for name, field in row.items()} for row in _read_csv(path)]
        case _:
            return [json.loads(line, object_hook=_times) for line in path.read_bytes().splitlines()]
    for row in rows:
        if row.get("body") is not None:
            row["body"] = json.loads(row["body"])
    return rows


def verify(folder: Path) -> dict[str, Any]:
    """The manifest, after a look at every file that it names."""
    manifest = manifest_of(folder)
    assert manifest["complete"]
    for each in manifest["files"]:
        content = (folder / each["file"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (each["bytes"], each["sha256"]), each["file"]
    assert sorted(entry.name for entry in folder.iterdir()) == sorted([*manifest["placed"], "manifest.json"])
    return manifest


def _read_csv(path: Path) -> list[dict[str, tuple[str, bool]]]:
    """Every field with whether it was quoted; a second reader has to agree."""
    text = path.read_bytes().decode()
    records: list[list[tuple[str, bool]]] = [[]]
    position = 0
    while position < len(text):
        found = _CSV_FIELD.match(text, position)
        assert found, text[position : position + 80]
        quoted = found[1] is not None
        records[-1].append((found[1].replace('""', '"') if quoted else found[2], quoted))
        if found[3] == "\r\n":
            records.append([])
        position = found.end()
    assert records.pop() == [], "the last line ends too"
    csv.field_size_limit(10**9)
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file, strict=True)) == [[text for text, _ in record] for record in records]
    head, *rest = records
    return [dict(zip([name for name, _ in head], record, strict=True)) for record in rest]


def _typed(kind: str, field: tuple[str, bool]) -> Any:
    text, quoted = field
    if not text and not quoted:
        return None
    assert quoted == (kind in ("text", "list of texts", "JSON")), (kind, field)
    match kind:
        case "whole number":
            return int(text)
        case "true or false":
            return {"true": True, "false": False}[text]
        case "time":
            return _moment(text)
        case "list of texts":
            return json.loads(text)
        case _:
            return text


def _times(found: dict[str, Any]) -> dict[str, Any]:
    if not {"kind", "owner", "body"} <= found.keys():
        return found
    times = {name: _moment(found[name]) for name in ("created_at", "changed_at", "gone_at") if found[name]}
    return found | times


def _moment(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text).astimezone(UTC)
