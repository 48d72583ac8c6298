"""SQL of prefetch and of the dashboard on a table of millions of subjects: `python -m bench prefetch-queries`.

The rows are written by one statement inside the database. Each statement is measured several times, in transactions of
their own; the samples begin at random positions.
"""

import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median

from sqlalchemy import bindparam, text
from tests.servers.migrated import migrated_database
from tests.servers.sql import SqlName

from bench.figures import Figure, Section
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.schema import UtcDateTime
from tidegate.systems.snapshots.prefetch import queries
from tidegate.systems.snapshots.prefetch.budget import CallBudget, TierShares
from tidegate.systems.snapshots.prefetch.policies import FixedTiers
from tidegate.systems.snapshots.settings import PrefetchSettings
from tidegate.systems.snapshots.topics import freshness_mix

ROWS: dict[SqlName, int] = {"sqlite": 2_000_000, "postgres": 1_000_000}
TITLES: dict[SqlName, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
TIMES, MOST_MS = 15, 50.0
_NUMBERS: dict[SqlName, str] = {
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows) SELECT n FROM s) AS s",
    "postgres": "generate_series(1, :rows) AS s(n)",
}
_BODY: dict[SqlName, str] = {"sqlite": "zeroblob(400)", "postgres": "decode(repeat('00', 400), 'hex')"}
_PLACE: dict[SqlName, str] = {"sqlite": "abs(random()) % 2147483648", "postgres": "floor(random() * 2147483648)"}
# One subject in a hundred was read an hour ago.
_FILL = """
INSERT INTO snapshots (kind, key, body, hash, size, version, last_updated_at, last_checked_at, last_asked_at,
                       next_due_at, tier, checks, changes, change_rate, sample_place)
SELECT 'character', CAST(n AS {text}), {body}, 'h', 17000, 1, :updated, :before,
       CASE WHEN n % 100 = 0 THEN :recently ELSE NULL END,
       CASE WHEN n % 200 = 0 THEN :due ELSE :later END,
       CASE WHEN n % 100 = 0 THEN 0 ELSE 2 END, 2, 1, (n % 1000) / 10.0,
       {place}
FROM {numbers}
"""


async def measure() -> Section:
    """Measure both databases, one after the other."""
    figures: list[Figure] = []
    for name, rows in ROWS.items():
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            async with (
                migrated_database(name, Path(folder)) as url,
                await Database.open(url) as database,
            ):
                await database.transaction(_fill, name, rows)
                figures += await _measured(database, f"{TITLES[name]}, {rows:,} subjects")
    return Section("Prefetch queries", figures, f"Median and maximum of {TIMES} transactions each.")


def _fill(tx: Transaction, name: SqlName, rows: int) -> None:
    numbers, body, kind = _NUMBERS[name], _BODY[name], "TEXT" if name == "sqlite" else "VARCHAR"
    before, later = tx.now - timedelta(hours=1), tx.now + timedelta(days=1)
    moments = {"before": before, "updated": before, "due": before, "later": later, "recently": before}
    fill = text(_FILL.format(text=kind, body=body, numbers=numbers, place=_PLACE[name]))
    typed = fill.bindparams(*(bindparam(name, type_=UtcDateTime) for name in moments))
    tx.execute(typed, {"rows": rows, **moments})
    tx.execute(text("ANALYZE snapshots"))


async def _measured(database: Database, where: str) -> list[Figure]:
    settings = PrefetchSettings()
    policy, shares, hours = FixedTiers(settings), TierShares(settings), CallBudget(settings)
    ttls = {"character": timedelta(minutes=30)}
    works: dict[str, Callable[[Transaction], object]] = {
        "subjects by tier and change rate": lambda tx: queries.count_subjects(tx, settings),
        "freshness of a sample": lambda tx: freshness_mix(tx, ttls),
        "status of prefetch": lambda tx: queries.prefetch_status(tx, settings),
        "the planner books 50 of the due subjects": lambda tx: queries.book(tx, policy, shares, hours, 50),
    }
    figures: list[Figure] = []
    for what, work in works.items():
        took_ms: list[float] = []
        for _ in range(TIMES):
            began = time.perf_counter()
            await database.transaction(work)
            took_ms.append((time.perf_counter() - began) * 1000)
        figures.append(_figure(f"{where}: {what}", took_ms))
    counted = await database.read(queries.count_subjects, settings)
    figures.append(Figure(f"{where}: estimate", f"{counted.total:,} subjects, {counted.tiers['HOT']:,} HOT"))
    return figures


def _figure(what: str, took_ms: list[float]) -> Figure:
    most = median(took_ms)
    return Figure(what, f"{most:.1f} / {max(took_ms):.1f} ms", f"median ≤ {MOST_MS:.0f} ms", most <= MOST_MS)
