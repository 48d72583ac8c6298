"""What a job costs: CPU time of each process that takes part, statements, bytes of the transaction log.

Rates depend on what else a machine does; these figures hardly do.
"""

import time
from dataclasses import dataclass, fields
from typing import Any, Self

import psutil
from sqlalchemy import Engine, event, text

from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey


@dataclass(frozen=True)
class Costs:
    """The result of one measurement. All but the rate are for each job."""

    rate: float
    """Jobs per second."""
    client_us: float
    """CPU time of this process."""
    sql_us: float
    """CPU time of the SQL server; 0 for SQLite, which runs in this process."""
    valkey_us: float
    """CPU time of the Valkey server."""
    statements: float
    """SQL statements, with the beginning and end of a transaction only where the driver sends them apart."""
    commands: float
    """Commands of Valkey, those of scripts included."""
    wal_bytes: float
    """Bytes that PostgreSQL wrote to its log; 0 elsewhere."""

    def each(self) -> str:
        """What a job costs, in words."""
        servers = f" + {self.sql_us:.0f} (SQL)" if self.sql_us else ""
        log = f", {self.wal_bytes:,.0f} B of log" if self.wal_bytes else ""
        return f"{self.client_us:.0f} µs of client CPU{servers} + {self.valkey_us:.0f} (Valkey){log}"

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name):,.3f}" for field in fields(self))


@dataclass(frozen=True)
class _Readings:
    at_s: float
    client_s: float
    sql_s: float
    valkey_s: float
    statements: int
    commands: int
    wal: int


class Meters:
    """Meters of this process and of the servers that it uses."""

    def __init__(self, valkey: Valkey, database: Database, sql_pid: int | None) -> None:
        self._valkey, self._database, self._sql_pid = valkey, database, sql_pid
        self._statements = 0
        self._start: _Readings | None = None

    @classmethod
    async def start(cls, valkey: Valkey, database: Database, sql_pid: int | None) -> Self:
        """Begin to measure. `sql_pid` is the process whose descendants are the SQL server; None for SQLite."""
        meters = cls(valkey, database, sql_pid)
        event.listen(Engine, "before_cursor_execute", meters._count)
        meters._start = await meters._readings()
        return meters

    async def read(self, jobs: int) -> Costs:
        """End the measurement, and return what each of `jobs` cost."""
        assert self._start is not None
        start, end = self._start, await self._readings()
        event.remove(Engine, "before_cursor_execute", self._count)
        return Costs(
            rate=jobs / (end.at_s - start.at_s),
            client_us=1e6 * (end.client_s - start.client_s) / jobs,
            sql_us=1e6 * (end.sql_s - start.sql_s) / jobs,
            valkey_us=1e6 * (end.valkey_s - start.valkey_s) / jobs,
            statements=(end.statements - start.statements) / jobs,
            commands=(end.commands - start.commands) / jobs,
            wal_bytes=(end.wal - start.wal) / jobs,
        )

    def _count(self, *_: Any) -> None:
        self._statements += 1

    async def _readings(self) -> _Readings:
        at_s, client_s, statements = time.perf_counter(), time.process_time(), self._statements
        sql_s = 0.0 if self._sql_pid is None else cpu_of_tree_s(self._sql_pid)
        cpu, stats = await self._valkey.execute("INFO", "cpu"), await self._valkey.execute("INFO", "commandstats")
        valkey_s = sum(float(cpu[f"used_cpu_{kind}"]) for kind in ("user", "sys"))
        commands = sum(int(stat["calls"]) for stat in stats.values())
        is_postgres = self._database.dialect == "postgresql"
        wal = await self._database.read(wal_position) if is_postgres else 0
        return _Readings(at_s, client_s, sql_s, valkey_s, statements, commands, wal)


def cpu_of_tree_s(pid: int) -> float:
    """CPU time of the descendants of a process, with those that ended."""
    total = 0.0
    for process in psutil.Process(pid).children(recursive=True):
        times = process.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


def wal_position(tx: Transaction) -> int:
    position = tx.execute(text("SELECT pg_current_wal_insert_lsn() - '0/0'")).scalar_one()
    return int(position)
