"""A board of a million members: what an event costs, and how long it takes to read.

python -m bench ranking
"""

import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import migrate
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer
from tidegate.systems.ranking.board_copy import BoardCopy
from tidegate.systems.ranking.model import CountedEvent, MemberScores, Score, windows_at
from tidegate.systems.ranking.score_store import count
from tidegate.systems.ranking.service import Ranking
from tidegate.systems.ranking.settings import Board, RankingSettings

MEMBERS = 1_000_000
BATCH = 1000
RAISES = 50_000
READS = 5000
EVENTS = 10_000
TOGETHER = 32
"""As many events as a relay handles at once."""
BOARD = Board(name="bench", timezone="Asia/Seoul")
MOST_READ_MS = 2.0


async def measure() -> Section:
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with (
            await EmbeddedServer.start(Path(folder)) as server,
            connected(server.url) as valkey,
            await Database.open(f"sqlite:///{folder}/bench.db") as database,
        ):
            await migrate(database)
            return await _measure(valkey, database)


async def _measure(valkey: Valkey, database: Database) -> Section:
    ranking = Ranking(database, valkey, RankingSettings(boards=(BOARD,)))
    await ranking.rebuild(BOARD.name)
    copy, now = BoardCopy(valkey, BOARD), datetime.now(UTC)
    bytes_each = await _fill(valkey, copy, now)
    raises_per_s, raise_us = await _raise(valkey, copy, now)
    today = windows_at(now, BOARD.zone)[0]
    top = await _p99_ms(copy.top(today, 10) for _ in range(READS))
    one = await _p99_ms(copy.around(today, _member(n), 2) for n in range(READS))
    events_per_s, event_us = await _events(database, copy, now)
    figures = [
        Figure("raised in day, week and month at once", f"{raises_per_s:,.0f}/s"),
        Figure("CPU of the server per event", f"{raise_us:.1f} µs"),
        Figure("top 10, p99", f"{top:.2f} ms", f"≤ {MOST_READ_MS:.0f} ms", top <= MOST_READ_MS),
        Figure("place and four neighbours, p99", f"{one:.2f} ms", f"≤ {MOST_READ_MS:.0f} ms", one <= MOST_READ_MS),
        Figure("server memory per member and window", f"{bytes_each:.0f} bytes"),
        Figure(f"events counted and shown, SQLite, {TOGETHER} together", f"{events_per_s:,.0f}/s"),
        Figure("CPU of this process per event", f"{event_us:.0f} µs"),
    ]
    note = f"{MEMBERS:,} members in each of three windows; batches of {BATCH:,} from one process."
    return Section("Ranking", figures, note)


def _member(n: int) -> str:
    return f"concert-{random.Random(n).randrange(MEMBERS)}"


def _standing(member: str, score: int, at: datetime) -> MemberScores:
    told = Score(member, score, at)
    return MemberScores(windows_at(at, BOARD.zone), (told, told, told))


async def _fill(valkey: Valkey, copy: BoardCopy, now: datetime) -> float:
    """Bytes of the server's memory for a member in one window."""
    before = await _used(valkey)
    for start in range(0, MEMBERS, BATCH):
        scores = [Score(f"concert-{n}", 1 + n % 1000, now) for n in range(start, start + BATCH)]
        for window in windows_at(now, BOARD.zone):
            await copy.fill(window, scores)
    return (await _used(valkey) - before) / MEMBERS / 3


async def _raise(valkey: Valkey, copy: BoardCopy, now: datetime) -> tuple[float, float]:
    """Events per second, and the server's CPU for each; every drawn member moves ahead of most others."""
    batches = [
        [_standing(_member(start + n), 2000 + start + n, now + timedelta(microseconds=start + n)) for n in range(BATCH)]
        for start in range(0, RAISES, BATCH)
    ]
    before, began = await _server_cpu_s(valkey), time.perf_counter()
    for batch in batches:
        await copy.put(batch)
    took = time.perf_counter() - began
    return RAISES / took, (await _server_cpu_s(valkey) - before) / RAISES * 1_000_000


async def _p99_ms(reads: Iterable[Awaitable[object]]) -> float:
    took: list[float] = []
    for read in reads:
        began = time.perf_counter()
        await read
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)[int(READS * 0.99)]


async def _events(database: Database, copy: BoardCopy, now: datetime) -> tuple[float, float]:
    """From an event to the ranking: SQL, then the server. Events a second, and CPU for each."""
    counts = [CountedEvent(event_id=str(n), member=_member(n % 500), at=now) for n in range(EVENTS)]
    began, cpu = time.perf_counter(), _cpu_s()
    for start in range(0, EVENTS, TOGETHER):
        tally = await database.transaction(count, BOARD, counts[start : start + TOGETHER])
        await copy.put(tally.standings)
    return EVENTS / (time.perf_counter() - began), (_cpu_s() - cpu) / EVENTS * 1_000_000


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _used(valkey: Valkey) -> int:
    return (await valkey.execute("INFO", "memory"))["used_memory"]


async def _server_cpu_s(valkey: Valkey) -> float:
    used = await valkey.execute("INFO", "cpu")
    return used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"]
