"""Servers that refuse requests for as long as a test wants, and the log lines about it."""

import asyncio
from collections.abc import Generator, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.servers.sql import SqlServer
from tests.servers.valkey import ValkeyServer
from tidegate.core.backoff import Backoff
from tidegate.runtime import outage
from tidegate.storage.sql import Database

Lines = Sequence[MutableMapping[str, Any]]


class Waits(Backoff):
    """Short pauses, with the number of failures in a row for which each was asked."""

    def __init__(self) -> None:
        super().__init__(first=timedelta(milliseconds=1), most=timedelta(milliseconds=20))
        self.asked: list[int] = []

    @property
    def count(self) -> int:
        return len(self.asked)

    @property
    def longest(self) -> int:
        """The greatest number of failures in a row, with which the pauses of the policy grow."""
        return max(self.asked, default=0)

    def delay(self, attempt: int) -> timedelta:
        self.asked.append(attempt)
        return super().delay(attempt)


@contextmanager
def refusing(server: ValkeyServer) -> Generator[None]:
    """The server refuses writes. Connections are closed, so that blocked readers have to ask again."""
    with server.client() as behind:
        behind.config_set("min-replicas-to-write", 1)
        behind.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        try:
            yield
        finally:
            behind.config_set("min-replicas-to-write", 0)


def lease_ended_ms_ago(server: ValkeyServer, key: str) -> float:
    """How long the last lease has been over, in ms of the server's clock."""
    with server.client() as client:
        seconds, micros = client.time()
        ((_, ends_at_ms),) = client.zrange(key, -1, -1, withscores=True)
        return int(seconds) * 1000 + int(micros) / 1000 - float(ends_at_ms)


async def set_read_only(server: SqlServer, name: str, state: str) -> None:
    """As after a failover: connections break, and new ones reach a read-only server. `state` is `on` or `off`."""
    await server.admin(f"ALTER DATABASE {name} SET default_transaction_read_only = {state}")
    await server.admin(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


def told(lines: Lines, event: str) -> list[str]:
    """The errors of all lines of an event."""
    return [line.get("error", "") for line in lines if line["event"] == event]


def noise(lines: Lines) -> list[str]:
    """Events that no outage may cause: a service that ended, or a line with a traceback."""
    return [line["event"] for line in lines if line["event"] == "service.failed" or line.get("exc_info")]


def lines_of_outage(lines: Lines) -> list[str]:
    """The events about servers, in order."""
    return [line["event"] for line in lines if line["event"].startswith("server.")]


def short_pauses(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Have all parts that follow the policy wait for moments only; returns the pauses that they asked for."""
    short = Waits()
    monkeypatch.setattr(outage, "OUTAGE_PAUSES", short)
    return short


class Held:
    """Transactions of a database wait, from the first on, until the test releases them."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self._transaction = database.transaction
        monkeypatch.setattr(database, "transaction", self._wait)

    async def _wait(self, *args: Any, **named: Any) -> Any:
        self.arrived.set()
        await self.released.wait()
        return await self._transaction(*args, **named)
