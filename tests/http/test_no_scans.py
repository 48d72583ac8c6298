"""Whatever a page asks, no statement behind it goes through a whole table that grows for ever.

SQLite says how it would run each of them. It has no statistics here, as in production, so it says the same of three
rows as of three million.
"""

import re
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.engine.busy_day import fill
from tests.http.serving import read_events
from tests.http.unattended import Unattended, unattended
from tests.servers.migrated import migrated_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROWING = {
    *("collection_runs", "page_jobs", "job_executions", "schedule_firings", "handled_events"),
    *("documents", "crawl_raws", "campaign_entries"),
}
"""Tables with a row for each thing that ever happened."""
WHOLE = {"/v1/reports/runs"}
"""Counts all runs there are by state, on purpose, from an index alone."""
BOUNDED = {"/v1/runs?search=a/b"}
"""A search examines 20,000 runs at most, in the order of an index; see `tidegate.engine.reports.run_search`."""
KNOWN = {"run_id": "1", "job_id": "1", "login": "mona", "host": "shop.example", "raw_id": "1", "schedule_id": "1"}
TOPICS = ("overview", "runtime", "quotas", "runs", "rooms", "campaigns", "crawl", "dead", "history")
Ran = dict[str, Any]


async def test_no_route_scans_a_growing_table(tmp_path: Path):
    async with unattended(tmp_path) as server:
        await server.database.transaction(fill)
        ran = {
            address: await _ran(server, address)
            for address in _addresses((await server.client.get("/openapi.json")).json)
        }
        with _listening() as statements:
            await _watch(server)
        ran["/v1/live"] = statements

    assert len(ran) > 60, "the document names fewer addresses than there are"
    assert ran["/v1/runs"], "nothing was heard of the database"
    with closing(sqlite3.connect(tmp_path / "tidegate.db")) as connection:
        scans = {
            address: [
                f"{table}: {sql}" for sql, given in statements.items() for table in _scanned(connection, sql, given)
            ]
            for address, statements in ran.items()
        }
    assert {address: found for address, found in scans.items() if found and address not in WHOLE | BOUNDED} == {}
    assert scans["/v1/reports/runs"], "the one that does is no longer noticed"


async def test_a_table_scan_is_detected_under_every_name(tmp_path: Path):
    await migrated_folder(tmp_path)
    with closing(sqlite3.connect(tmp_path / "tidegate.db")) as connection:
        for sql, table in {
            "SELECT * FROM page_jobs WHERE last_error = 'x'": "page_jobs",
            "SELECT count(*) FROM page_jobs j JOIN collection_runs AS r ON r.id = j.run_id": "page_jobs",
            "SELECT * FROM collection_runs ORDER BY last_error LIMIT 5": "collection_runs",
            "SELECT * FROM collection_runs WHERE calls > 3 ORDER BY id LIMIT 5": "collection_runs",
        }.items():
            assert _scanned(connection, sql, ()) == [table], sql
        for sql in (
            "SELECT * FROM collection_runs ORDER BY id DESC LIMIT 5",
            "SELECT * FROM collection_runs WHERE id < 5 ORDER BY id DESC LIMIT 5",
            "SELECT count(*) FROM page_jobs WHERE run_id = 5",
        ):
            assert _scanned(connection, sql, ()) == [], sql


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ("source=github&state=failed", "source=? AND status=?"),
        ("source=github&state=failed&state=completed&before=3", "source=? AND status=?"),
        ("source=github", "source=? AND status=?"),
        ("login=mona&source=github", "login=?"),
        ("login=mona&source=github&state=failed&before=3", "login=?"),
        ("login=mona&state=failed", "login=?"),
    ],
)
async def test_combined_filters_of_runs_read_only_matching_runs(tmp_path: Path, filters: str, index: str):
    """Otherwise the failed runs of one source would be searched for among those of all sources."""
    async with unattended(tmp_path) as server:
        ran = await _ran(server, f"/v1/runs?{filters}")
        with closing(sqlite3.connect(tmp_path / "tidegate.db")) as connection:
            steps = [
                row[3]
                for sql, given in ran.items()
                if "collection_runs" in sql
                for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)
            ]

    searches = [step for step in steps if "collection_runs" in step and "rowid=?" not in step]
    assert searches
    assert [step for step in searches if f"({index}" not in step] == []


def _addresses(document: Mapping[str, Any]) -> Iterator[str]:
    """Every address that can be asked, as it is, and with each of its parameters."""
    for path, methods in document["paths"].items():
        operation = methods.get("get")
        if operation is None or "text/event-stream" in next(iter(operation["responses"].values()))["content"]:
            continue
        address = re.sub(r"{(\w+)}", lambda name: KNOWN.get(name[1], "x"), path)
        yield address
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                yield from (f"{address}?{parameter['name']}={value}" for value in _values(parameter))


def _values(parameter: Mapping[str, Any]) -> Sequence[str]:
    if parameter["name"] in KNOWN:
        return [KNOWN[parameter["name"]]]
    schema: Mapping[str, Any] = parameter["schema"]
    schema = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
    schema = schema.get("items", schema)
    if "enum" in schema:
        return schema["enum"]
    return {"boolean": ["true", "false"], "string": ["a/b"]}.get(schema.get("type", ""), ["5"])


async def _ran(server: Unattended, address: str) -> Ran:
    with _listening() as statements:
        answer = await server.client.get(address)
    assert answer.status < 500, answer
    return statements


async def _watch(server: Unattended) -> None:
    """Everything that can be watched, until each of it was shown once."""
    wanted = "&".join(f"topic={topic}" for topic in TOPICS)
    seen = set[str]()
    async with server.client.session.get(f"{server.client.url}/v1/live?{wanted}") as answer:
        assert answer.status == 200
        async for each in read_events(answer):
            seen.add(each.kind)
            if seen >= set(TOPICS):
                return


@contextmanager
def _listening() -> Generator[Ran]:
    """Statements that are run meanwhile, each with its parameters."""
    heard: Ran = {}

    def hear(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        heard[statement] = parameters

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


def _scanned(connection: sqlite3.Connection, sql: str, given: Any) -> list[str]:
    """The growing tables through which a statement goes from end to end."""
    if not sql.lstrip().upper().startswith(("SELECT", "WITH")):
        return []
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
    if "WHERE" not in sql and "LIMIT" in sql and not any("TEMP B-TREE" in step for step in steps):
        return []  # the first or last few rows, in the order in which they are kept
    names = {alias: table for table, alias in re.findall(r"(?:FROM|JOIN)\s+(\w+)\s+(?:AS\s+)?(\w+)", sql)}
    found = [match[1] for step in steps if (match := re.match(r"SCAN (\w+)", step))]
    return [names.get(name, name) for name in found if names.get(name, name) in GROWING]
