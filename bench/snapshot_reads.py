"""The read path beside the same route written by hand, beside a bare ASGI handler, and beside nginx's cache.

Each has one process, the same subjects and the same answers (17 KB of JSON), all of them in its caches; one client of
Tidegate reads from all of them, in turn.
"""

import asyncio
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.engine import ANSWER
from bench.figures import Figure, Section
from bench.processes import TIDEGATE, Meter, percentile, running
from bench.read_load import Load, Seen
from bench.server import tcp_server
from tidegate.connections import open_database
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.kinds import GameCharacter
from tidegate.systems.snapshots.model import FoundSubject, SnapshotSubject
from tidegate.systems.snapshots.store import Refreshed
from tidegate_simulators.game import WorldShape
from tidegate_simulators.game.documents import Documents
from tidegate_simulators.game.world import World

SUBJECTS, LINES = 1_000, 32
FOR_S, TURNS = 3.0, 4
OURS = "/v1/snapshots/character/"
MANY_LINES = 256
BARE = "bare ASGI handler"
TARGETS = {BARE: 0.9, "nginx": 0.85, "FastAPI, plain": 3.0, "FastAPI, careful": 3.0}
"""Least speed of ours, compared with each."""
P99_MS, MANY_P99_MS = 5.0, 20.0
_PEER_PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"
_PEER = Path(__file__).parent / "peers" / "run_fastapi_snapshots.py"
_PATHS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"))
"""Debian keeps servers where ordinary users do not look."""
_NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 256; }}
http {{
  access_log off; keepalive_requests 100000000; client_body_temp_path {folder}/temp; proxy_temp_path {folder}/temp;
  fastcgi_temp_path {folder}/temp; uwsgi_temp_path {folder}/temp; scgi_temp_path {folder}/temp;
  proxy_cache_path {folder}/cache keys_zone=snapshots:16m;
  upstream ours {{ server 127.0.0.1:{upstream}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://ours; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host localhost;
      proxy_cache snapshots; proxy_cache_valid 200 60s; proxy_ignore_headers Cache-Control;
      proxy_cache_use_stale updating error timeout; proxy_cache_background_update on; proxy_cache_lock on;
    }}
  }}
}}
"""


class Rival(msgspec.Struct, frozen=True):
    """One of those that answer."""

    name: str
    port: int
    path: str
    pid: int


class Speed(msgspec.Struct, frozen=True):
    """How fast one of them answered, at most."""

    per_second: float
    cpu_us: float
    """Of its process, for each read."""
    client: float
    """How busy the client was."""


async def measure() -> Section:
    """In turn, so that all meet the same moments of the machine."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, tcp_server() as valkey_url:
        async with AsyncExitStack() as stack:
            rivals = await _start(stack, Path(folder), valkey_url)
            best: dict[str, Speed] = {}
            for rival in rivals * TURNS:
                speed = await _speed(rival)
                if rival.name not in best or best[rival.name].per_second < speed.per_second:
                    best[rival.name] = speed
            half = best["tidegate"].per_second / 2
            # Once before: most cached snapshots expired during the turns of the others.
            await _load(rivals[0], per_second=half, for_s=1.0)
            calm = await _load(rivals[0], per_second=half)
            full = await _load(rivals[0], lines=MANY_LINES)
    return _section(best, half, calm, full)


@asynccontextmanager
async def serving(folder: Path, valkey_url: str) -> AsyncGenerator[Rival]:
    """Run `tidegate serve` on stored snapshots. None of them was read yet."""
    settings = {"TIDEGATE_DATA_DIR": str(folder), "TIDEGATE_VALKEY_URL": valkey_url, "TIDEGATE_LOG__LEVEL": "warning"}
    settings["TIDEGATE_SNAPSHOTS__GAME__URL"] = "http://127.0.0.1:9"  # a closed port: no refresh is due
    async with open_database(Settings(data_dir=folder)) as database:
        await database.transaction(_fill, snapshot_bodies())
    async with running(TIDEGATE, "serve", "--port", "0", "--json", settings=settings) as server:
        yield Rival("tidegate", int(server.said["url"].rpartition(":")[2]), OURS, server.pid)


async def read_continuously(rival: Rival, for_s: float) -> None:
    """Read at full speed, for so long."""
    await _load(rival, for_s=for_s)


async def _start(stack: AsyncExitStack, folder: Path, valkey_url: str) -> list[Rival]:
    """All of them, on the same data, with everything read once."""
    ours = await stack.enter_async_context(serving(folder, valkey_url))
    command = (sys.executable, "-m", "bench.bare_reads", str(ours.port), OURS, str(SUBJECTS))
    bare = await stack.enter_async_context(running(*command))
    rivals = [ours, Rival(BARE, bare.said["port"], OURS, bare.pid)]
    if _PEER_PYTHON.exists():
        _fill_peer(folder / "peer.db", snapshot_bodies())
        command = (str(_PEER_PYTHON), str(_PEER), valkey_url, str(folder / "peer.db"))
        peer = await stack.enter_async_context(running(*command))
        rivals += [
            Rival("FastAPI, plain", peer.said["port"], "/plain/character/", peer.pid),
            Rival("FastAPI, careful", peer.said["port"], "/careful/character/", peer.pid),
        ]
    if (nginx := shutil.which("nginx", path=_PATHS)) is not None:
        rivals.append(await stack.enter_async_context(_nginx(nginx, folder / "nginx", ours.port)))
    for rival in rivals:
        await _load(rival, for_s=1.0)
    return rivals


@asynccontextmanager
async def _nginx(command: str, folder: Path, upstream: int) -> AsyncGenerator[Rival]:
    """nginx in front of the Tidegate server, from which it updates every minute in the background."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "nginx.conf").write_text(_NGINX.format(port=port, upstream=upstream, folder=folder))
    process = await asyncio.create_subprocess_exec(command, "-p", str(folder), "-c", str(folder / "nginx.conf"))
    try:
        await _listening(port)
        yield Rival("nginx", port, OURS, process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _listening(port: int) -> None:
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            return writer.close()
    raise RuntimeError("nginx did not start")


def snapshot_bodies(subjects: int = SUBJECTS) -> list[bytes]:
    """Snapshots as they are kept, of so many characters."""
    world, kind = World(WorldShape(missing=0)), GameCharacter("http://nowhere.test")
    documents, bodies = Documents(world), list[bytes]()
    for n in range(1, subjects + 1):
        state = world.state(n, 0)
        assert state is not None
        answer = msgspec.structs.replace(ANSWER, body=b"".join(documents.plain(state)[0]))
        found = kind.read(str(n), answer)
        assert isinstance(found, FoundSubject)
        bodies.append(found.body)
    return bodies


def _fill(tx: Transaction, bodies: Sequence[bytes]) -> None:
    now = datetime.now(UTC)
    for n, body in enumerate(bodies, 1):
        store.write_round(tx, [Refreshed.of(SnapshotSubject("character", str(n)), 1, checked_at=now, body=body)])


def _fill_peer(path: Path, bodies: Sequence[bytes]) -> None:
    now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "CREATE TABLE peer_snapshots (kind TEXT, key TEXT, body TEXT, "
            "last_updated_at DATETIME, last_checked_at DATETIME, PRIMARY KEY (kind, key))"
        )
        rows = [("character", str(n), body.decode(), now, now) for n, body in enumerate(bodies, 1)]
        database.executemany("INSERT INTO peer_snapshots VALUES (?, ?, ?, ?, ?)", rows)


async def _speed(rival: Rival) -> Speed:
    meter = Meter({"it": rival.pid})
    seen = await _load(rival)
    cpu_us = 1e6 * meter.read()["it"] / len(seen.took_s)
    return Speed(seen.per_second, cpu_us, seen.busy)


async def _load(rival: Rival, *, per_second: float | None = None, for_s: float = FOR_S, lines: int = LINES) -> Seen:
    load = Load(port=rival.port, path=rival.path, keys=SUBJECTS, lines=lines, for_s=for_s, per_second=per_second)
    command = (sys.executable, "-m", "bench.read_load", msgspec.json.encode(load).decode())
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    said, _ = await process.communicate()
    seen = msgspec.json.decode(said, type=Seen)
    if seen.refused:
        raise RuntimeError(f"{rival.name} refused {seen.refused} of {len(seen.took_s)} reads")
    return seen


def _section(best: dict[str, Speed], half: float, calm: Seen, full: Seen) -> Section:
    ours, p99_ms = best["tidegate"], 1000 * percentile(calm.took_s, 0.99)
    figures = [Figure(f"{name}: reads", _told(speed)) for name, speed in best.items()]
    for name, least in TARGETS.items():
        if name in best:
            ratio, by_cpu = ours.per_second / best[name].per_second, best[name].cpu_us / ours.cpu_us
            told = f"{ratio:.2f}x, {by_cpu:.2f}x by CPU"
            figures.append(Figure(f"tidegate / {name}", told, f"≥ {least:g}x", ratio >= least))
    missing = [name for name in TARGETS if name not in best]
    figures += [Figure(f"{name}: reads", "not on this machine") for name in missing]
    p50_ms, full_ms = 1000 * percentile(calm.took_s, 0.5), 1000 * percentile(full.took_s, 0.99)
    told = f"{p50_ms:.1f} / {p99_ms:.1f} ms"
    figures += [
        Figure(f"tidegate at {half:,.0f} reads/s, p50 / p99", told, f"p99 ≤ {P99_MS:.0f} ms", p99_ms <= P99_MS),
        Figure(
            f"tidegate with {MANY_LINES} connections at full speed, p99",
            f"{full_ms:.1f} ms",
            f"≤ {MANY_P99_MS:.0f} ms",
            full_ms <= MANY_P99_MS,
        ),
    ]
    return Section(
        "Snapshot reads",
        figures,
        f"{SUBJECTS:,} subjects of 17 KB, {LINES} connections, one process each, the best of {TURNS} turns. nginx "
        "with `proxy_cache` is in front of the Tidegate server, and serves stale copies while it updates them.",
    )


def _told(speed: Speed) -> str:
    client = f"the client: {100 * speed.client:.0f} % of a core"
    return f"{speed.per_second:,.0f}/s, {speed.cpu_us:.0f} µs of its CPU each ({client})"
