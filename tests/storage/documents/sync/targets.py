"""Destinations of the tests, and what is in them, read by other means than `sync` uses."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import asyncpg
import duckdb
import pyarrow.parquet as pq

from tests.servers.sql import sql_server
from tests.storage.documents.harness import StoreHarness
from tidegate.storage.documents import DocumentStore
from tidegate.storage.documents.export.columns import (
    EACH,
    Column,
    TableShape,
    number_in_link,
    text,
    texts,
    time,
    truth,
    whole,
)
from tidegate.storage.documents.sync.destination import DestinationAddress, parse_destination
from tidegate.storage.documents.sync.synchronizer import SyncOrder, SyncReport, sync

TargetName = Literal["duckdb", "postgres", "parquet", "jsonl"]
ALL_TARGETS: tuple[TargetName, ...] = ("duckdb", "postgres", "parquet", "jsonl")
Row = Mapping[str, Any]

FIELDS: Sequence[Column] = (
    text("title"),
    text("login", "user", "login"),
    whole("user_id", "user", "id"),
    truth("locked"),
    time("closed_at"),
    texts("labels", "labels", EACH, "name"),
    texts("topics"),
    number_in_link("parent", "parent_url"),
)
KINDS = {"issue": FIELDS}


@dataclass
class Target:
    name: TargetName
    url: str
    """As a user writes it."""

    @property
    def address(self) -> DestinationAddress:
        return parse_destination(self.url)

    async def sync(
        self, store: DocumentStore, kinds: Mapping[str, Sequence[Column]] = KINDS, **options: Any
    ) -> SyncReport:
        return await sync(store, SyncOrder(to=self.address, kinds=kinds, **options))

    async def written(self, store: DocumentStore, **options: Any) -> int:
        return (await self.sync(store, **options)).written

    async def query(self, sql: str) -> list[Row]:
        """Of a database; the tables are in the schemas of their sources."""
        if self.name == "postgres":
            connection = await asyncpg.connect(self.url)
            try:
                return [dict(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()
        with duckdb.connect(self.address.place, read_only=True) as file:
            return file.sql(sql).to_arrow_table().to_pylist()

    async def rows(self, kind: str = "issue", source: str = "github") -> dict[str, Row]:
        """The rows of a table by their ids. Fails where an id is there twice."""
        match self.name:
            case "duckdb" | "postgres":
                found = await self.query(f'SELECT * FROM "{source}"."{kind}"')
            case "parquet":
                found = pq.read_table(self.file(kind, source)).to_pylist()
            case "jsonl":
                found = [json.loads(line) for line in self.file(kind, source).read_bytes().splitlines()]
        by_id: dict[str, Row] = {row["id"]: {name: normal(name, value) for name, value in row.items()} for row in found}
        assert len(by_id) == len(found)
        return by_id

    def file(self, kind: str = "issue", source: str = "github") -> Path:
        return Path(self.address.place) / source / f"{kind}.{self.name}"


def normal(name: str, value: Any) -> Any:
    """Times are in UTC everywhere, with or without saying so."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, str) and name.endswith("_at"):
        return datetime.fromisoformat(value)
    return value


async def expected(store: DocumentStore, kind: str = "issue", fields: Sequence[Column] = FIELDS) -> dict[str, Row]:
    """What the table has to have: one row for each document, read document by document."""
    shape = TableShape(fields, with_body=False)
    rows: dict[str, Row] = {}
    async for document in store.iterate(kind, with_gone=True):
        rows[document.id] = {
            "id": document.id,
            "owner": document.owner,
            "resource": document.resource,
            "resource_key": document.resource.split(":", 1)[-1],
            "version": document.version,
            **dict(zip([column.name for column in fields], shape.values(document), strict=True)),
            "_source": store.source,
            "_first_collected_at": document.created_at,
            "_collected_at": document.changed_at,
            "_deleted_at": document.gone_at,
            "_fingerprint": document.fingerprint,
        }
    return rows


async def assert_equal(target: Target, harness: StoreHarness) -> None:
    assert await target.rows() == await expected(harness.store)


@asynccontextmanager
async def open_target(name: TargetName, folder: Path) -> AsyncGenerator[Target]:
    """An empty destination."""
    if name != "postgres":
        yield Target(name, f"{name}:{folder / 'warehouse'}")
        return
    server = sql_server("postgres")
    async with server.database() as database:
        yield Target(name, server.url(database))
