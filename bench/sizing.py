"""What large deployments need, computed from unit costs in bench/RESULTS.md and written into docs/guides/sizing.md.

    .venv/bin/python -m bench.sizing    # generate the tables of the page

`make bench ONLY=scaling` does this after it has measured; a test compares the page with the results.
"""

import re
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from bench.figures import RESULTS
from bench.scaling import DOCUMENTS

PAGE = Path(__file__).parent.parent / "docs" / "guides" / "sizing.md"
BEGIN, END = "<!-- computed by bench/sizing.py: begin -->", "<!-- computed by bench/sizing.py: end -->"

PEAK = 3.0
"""The busiest hour has so many times the mean rate."""
USED = 0.6
"""Share of a core that is planned for."""
SPARE = 2.0
"""Valkey needs room while it writes its file again; a disk needs room for vacuum and indexes."""
JOBS_A_DAY, DAYS_KEPT, BACKLOG_H = 100_000_000, 7, 1.0
SUBJECTS, CALLS_A_DAY, READS_PER_CALL, COPIES = 18_000_000, 20_000_000, 10.0, 0.1
VISITORS, JOIN_WITHIN_S, WATCHERS_SHARE, POLL_S, ADMITTED_PER_S = 1_000_000, 600.0, 1.0, 10.0, 500.0
REFRESHES_PER_S = 450.0
_DAY_S = 86_400.0


class UnitCost(NamedTuple):
    """A figure of the results: what it is, its section and row, and where it stands in the cell."""

    what: str
    section: str
    row: str
    unit: str
    pattern: str = r"([\d,.]*\d)"


_JOB, _PAGE_JOB = "unit cost of a job", f"unit cost of a job with {DOCUMENTS} documents"
_SNAPSHOT = "unit cost of a snapshot"
UNIT_COSTS = {
    "job_worker": UnitCost("a job: CPU of a worker", "Scaling", f"{_JOB}: CPU of a worker", "µs"),
    "job_valkey": UnitCost("a job: CPU of Valkey", "Scaling", f"{_JOB}: CPU of Valkey", "µs"),
    "job_sql": UnitCost("a job: CPU of PostgreSQL", "Scaling", f"{_JOB}: CPU of SQL", "µs"),
    "job_wal": UnitCost("a job: WAL", "Scaling", f"{_JOB}: WAL", "bytes"),
    "job_disk": UnitCost("a job: disk", "Scaling", f"{_JOB}: disk", "bytes"),
    "job_network": UnitCost("a job: network between components", "Scaling", f"{_JOB}: network", "bytes"),
    "job_memory": UnitCost("a waiting job: Valkey memory", "Sizes", "Valkey: memory for each waiting job", "bytes"),
    "page_worker": UnitCost(
        f"a page with {DOCUMENTS} documents, fetched and parsed: CPU of a worker",
        "HTTP",
        "tidegate: 5,000 pages found, fetched and written",
        "ms",
        r"([\d.]+) ms of CPU",
    ),
    "page_sql": UnitCost(
        f"a job with {DOCUMENTS} documents of 1 KB: CPU of PostgreSQL", "Scaling", f"{_PAGE_JOB}: CPU of SQL", "µs"
    ),
    "page_wal": UnitCost("the same: WAL", "Scaling", f"{_PAGE_JOB}: WAL", "bytes"),
    "page_disk": UnitCost("the same: disk", "Scaling", f"{_PAGE_JOB}: disk", "bytes"),
    "page_network": UnitCost("the same: network", "Scaling", f"{_PAGE_JOB}: network", "bytes"),
    "permit_valkey": UnitCost("a permit of the limiter: CPU of Valkey", "Limiter", "server time per permit", "µs"),
    "refresh_worker": UnitCost(
        "a refresh of 300 KB: CPU of worker and server process",
        "Service level",
        "PostgreSQL: CPU of all Tidegate processes per refresh, planning and reads included",
        "ms",
    ),
    "refresh_valkey": UnitCost(
        f"{REFRESHES_PER_S:g} refreshes per second: Valkey",
        "Service level",
        "PostgreSQL: share of one core",
        "% of a core",
        r"Valkey (\d+) %",
    ),
    "snapshot_sql": UnitCost("a snapshot: CPU of PostgreSQL", "Scaling", f"{_SNAPSHOT}: CPU of SQL", "µs"),
    "snapshot_wal": UnitCost("a snapshot: WAL", "Scaling", f"{_SNAPSHOT}: WAL", "bytes"),
    "snapshot_disk": UnitCost("a snapshot with its history: disk", "Scaling", f"{_SNAPSHOT}: disk", "bytes"),
    "snapshot_memory": UnitCost(
        "a copy of a snapshot: Valkey memory", "Scaling", f"{_SNAPSHOT}: Valkey memory of a copy", "bytes"
    ),
    "snapshot_stored": UnitCost("a snapshot: bytes as stored", "Scaling", f"{_SNAPSHOT}: bytes as stored", "bytes"),
    "read": UnitCost("a read of a snapshot: CPU", "Snapshot reads", "tidegate: reads", "µs", r"([\d.]+) µs of its CPU"),
    "join": UnitCost("a visitor joins: CPU", "Room requests", "tidegate: joins", "µs", r"([\d.]+) µs of its CPU"),
    "place": UnitCost(
        "a visitor asks for the place: CPU", "Room requests", "tidegate: places", "µs", r"([\d.]+) µs of its CPU"
    ),
    "visitor_memory": UnitCost(
        "a visitor in line: Valkey memory", "Waiting room", "memory per visitor in line, everything included", "bytes"
    ),
    "join_valkey": UnitCost(
        "joins by one Valkey server", "Waiting room", "join, 1,000,000 visitors, by the server's CPU time", "per s"
    ),
    "watcher_memory": UnitCost(
        "a visitor with an event stream: memory", "Room watchers", "memory of that process for each watcher", "KB"
    ),
    "admit": UnitCost(
        "100 admissions: script, transaction, script",
        "Waiting room",
        "admit 100: script, transaction on SQLite, script",
        "ms",
    ),
}


def read_costs(results: str) -> dict[str, float]:
    """The unit costs, as the results give them. Raises `ValueError` for a row that is missing."""
    found: dict[str, float] = {}
    for name, cost in UNIT_COSTS.items():
        section = re.search(rf"^## {re.escape(cost.section)}$(.*?)(?=^## |\Z)", results, re.MULTILINE | re.DOTALL)
        row = section and re.search(rf"^\| {re.escape(cost.row)} \| (.*?) \|", section[1], re.MULTILINE)
        number = row and re.search(cost.pattern, row[1])
        if not number:
            raise ValueError(f"bench/RESULTS.md has no figure for {cost.section}: {cost.row}")
        found[name] = float(number[1].replace(",", ""))
    return found


class Need(NamedTuple):
    """One line of what a deployment needs."""

    what: str
    formula: str
    needed: str


def jobs_need(c: dict[str, float]) -> list[Need]:
    """100 million jobs a day, each a page that is fetched, parsed and written to PostgreSQL."""
    mean = JOBS_A_DAY / _DAY_S
    peak = PEAK * mean
    return [
        Need("jobs at the peak", f"{JOBS_A_DAY:,} / 86,400 s × {PEAK:g}", f"{peak:,.0f}/s"),
        _cores("workers, one process for each core", peak, c["page_worker"] * 1000),
        _cores("PostgreSQL", peak, c["page_sql"]),
        _cores("Valkey; the gate of a source lies on one node, and a node uses one core", peak, c["job_valkey"]),
        Need(
            "Valkey memory",
            f"{BACKLOG_H:g} h of jobs at the peak × {c['job_memory']:g} bytes × {SPARE:g}",
            _bytes(peak * BACKLOG_H * 3600 * c["job_memory"] * SPARE),
        ),
        Need(
            "disk of PostgreSQL for jobs",
            f"{JOBS_A_DAY:,} × {DAYS_KEPT} days (`retention.runs`) × {c['job_disk']:,.0f} bytes × {SPARE:g}",
            _bytes(JOBS_A_DAY * DAYS_KEPT * c["job_disk"] * SPARE),
        ),
        Need(
            "disk for documents, while all of them are new",
            f"{JOBS_A_DAY:,} × {c['page_disk'] - c['job_disk']:,.0f} bytes a day",
            f"{_bytes(JOBS_A_DAY * (c['page_disk'] - c['job_disk']))} a day",
        ),
        Need("WAL", f"{mean:,.0f}/s × {c['page_wal']:,.0f} bytes", f"{_bytes(JOBS_A_DAY * c['page_wal'])} a day"),
        _network(peak, c["page_network"]),
    ]


def snapshots_need(c: dict[str, float]) -> list[Need]:
    """18 million subjects, refreshed by 20 million calls a day."""
    mean = CALLS_A_DAY / _DAY_S
    peak = PEAK * mean
    reads = mean * READS_PER_CALL * PEAK
    return [
        Need("refreshes at the peak", f"{CALLS_A_DAY:,} / 86,400 s × {PEAK:g}", f"{peak:,.0f}/s"),
        Need("refreshes of a subject", f"{CALLS_A_DAY:,} / {SUBJECTS:,}", f"{CALLS_A_DAY / SUBJECTS:.2f} a day"),
        _cores("workers and their reads", peak, c["refresh_worker"] * 1000),
        _cores(f"`tidegate serve`, {READS_PER_CALL:g} reads for each refresh", reads, c["read"]),
        _cores("PostgreSQL", peak, c["snapshot_sql"]),
        _cores("Valkey: events, locks, copies", peak, c["refresh_valkey"] / 100 / REFRESHES_PER_S * 1e6),
        _cores("Valkey: permits", peak, c["permit_valkey"]),
        Need(
            "Valkey memory",
            f"copies of {COPIES:.0%} of the subjects × {c['snapshot_memory']:,.0f} bytes × {SPARE:g}",
            _bytes(SUBJECTS * COPIES * c["snapshot_memory"] * SPARE),
        ),
        Need(
            "disk of PostgreSQL, each subject with one version in its history",
            f"{SUBJECTS:,} × {c['snapshot_disk']:,.0f} bytes × {SPARE:g}",
            _bytes(SUBJECTS * c["snapshot_disk"] * SPARE),
        ),
        Need(
            "WAL",
            f"{CALLS_A_DAY:,} × {c['snapshot_wal']:,.0f} bytes",
            f"{_bytes(CALLS_A_DAY * c['snapshot_wal'])} a day",
        ),
        Need(
            "network from the upstream",
            f"{peak:,.0f}/s × 300 KB; less by as much as the upstream compresses",
            f"{peak * 300_000 * 8 / 1e6:,.0f} Mbit/s",
        ),
        _network(peak + reads, c["snapshot_stored"]),
    ]


def room_need(c: dict[str, float]) -> list[Need]:
    """1 million visitors who join within ten minutes and wait."""
    joins, asks = VISITORS / JOIN_WITHIN_S, VISITORS / POLL_S
    return [
        Need("joins", f"{VISITORS:,} in {JOIN_WITHIN_S:.0f} s", f"{joins:,.0f}/s"),
        _cores("`tidegate serve`, joins", joins, c["join"]),
        _cores(f"`tidegate serve`, each visitor asks every {POLL_S:g} s", asks, c["place"]),
        _cores("Valkey, joins; a room lies on one node", joins, 1e6 / c["join_valkey"]),
        _cores(f"the leader, {ADMITTED_PER_S:g} admissions per second", ADMITTED_PER_S, c["admit"] * 10),
        Need(
            "Valkey memory",
            f"{VISITORS:,} × {c['visitor_memory']:g} bytes × {SPARE:g}",
            _bytes(VISITORS * c["visitor_memory"] * SPARE),
        ),
        Need(
            "memory of `tidegate serve`, if all follow by an event stream instead",
            f"{VISITORS:,} × {c['watcher_memory']:g} KB",
            _bytes(VISITORS * c["watcher_memory"] * 1000),
        ),
    ]


DEPLOYMENTS: Sequence[tuple[str, Callable[[dict[str, float]], list[Need]]]] = (
    (f"{JOBS_A_DAY / 1e6:.0f} million jobs a day, each a page of {DOCUMENTS} documents", jobs_need),
    (f"{SUBJECTS / 1e6:.0f} million subjects, {CALLS_A_DAY / 1e6:.0f} million calls a day", snapshots_need),
    (f"{VISITORS / 1e6:.0f} million waiting visitors", room_need),
)


def computed(results: str) -> str:
    """The part of the page that follows from the results."""
    costs = read_costs(results)
    lines = ["### Unit costs", "", "| what | cost | measured (section: row) |", "| --- | --- | --- |"]
    for name, cost in UNIT_COSTS.items():
        lines.append(f"| {cost.what} | {costs[name]:,g} {cost.unit} | {cost.section}: {cost.row} |")
    for title, needs in DEPLOYMENTS:
        lines += ["", f"### {title}", "", "| what | formula | needed |", "| --- | --- | --- |"]
        lines += [f"| {need.what} | {need.formula} | {need.needed} |" for need in needs(costs)]
    return "\n".join([*lines, ""])


def write() -> None:
    """Generate the tables of the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{computed(RESULTS.read_text())}\n{END}{rest.split(END)[1]}")


def _cores(what: str, per_s: float, cost_us: float) -> Need:
    cores = per_s * cost_us / 1e6 / USED
    return Need(f"cores for {what}", f"{per_s:,.0f}/s × {cost_us:,.4g} µs / {USED:g}", f"{cores:.2f}, so {ceil(cores)}")


def _network(per_s: float, each: float) -> Need:
    return Need(
        "network between the components", f"{per_s:,.0f}/s × {each:,.0f} bytes", f"{per_s * each * 8 / 1e6:,.0f} Mbit/s"
    )


def _bytes(number: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


if __name__ == "__main__":
    write()
