"""The deployment under test: three simulated upstreams, Valkey, a database, and several `tidegate up` processes."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.sql import Postgres, SqlName, sql_server

from chaos.servers import LosableValkey
from tidegate.runtime.waiting import occurs
from tidegate_simulators import game, github, marketplace

TIDEGATE = str(Path(sys.executable).with_name("tidegate"))
CHARACTERS_PER_S = 50
SUBJECTS = 300
CRAWL_GAP_S = 0.2
RESTART_PAUSE_S = 1.0
_DISK_MB = 256
_MOST_STARTS = 3
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_GITHUB_FAULTS = (
    "500=0.005,502=0.005,reset=0.005,truncated=0.003,invalid=0.003,secondary=0.001,null=0.02,wrong-type=0.01"
)
_GAME_FAULTS = "500=0.01,reset=0.005,truncated=0.003,invalid=0.003,429=0.003,wrong=0.01"
_MARKET_FAULTS = "500=0.005,reset=0.005,truncated=0.003,redirect=0.01,captcha=0.001,invalid=0.003"


PER_REQUEST = (b'"http.acted"', b'"http.answered"', b'"run.started"', b'"run.completed"')
"""Log events whose number is that of the requests of the load."""


class Member:
    """One `tidegate up` process that is started again whenever it ends, as a service manager would do."""

    def __init__(self, number: int, port: int, environment: dict[str, str], folder: Path) -> None:
        self.number, self.url = number, f"http://127.0.0.1:{port}"
        self._port, self._environment, self._folder = port, environment, folder
        self._process: Process | None = None
        self.is_ready = asyncio.Event()
        self.incarnation = 0
        self._began_at: float | None = None
        self._lived_s = 0.0
        self.memory_kb: list[tuple[float, int]] = []
        """Resident memory, sampled while the current process lives."""

    async def run(self) -> None:
        """Keep a process running until cancelled."""
        while True:
            self._began_at = time.monotonic()
            try:
                await self._live()
            finally:
                self.is_ready.clear()
                self._lived_s, self._began_at = self.lifetime_s, None
            await asyncio.sleep(RESTART_PAUSE_S)

    @property
    def lifetime_s(self) -> float:
        """How long processes of this member ran so far, in all."""
        return self._lived_s + (0.0 if self._began_at is None else time.monotonic() - self._began_at)

    async def _live(self) -> None:
        self.incarnation += 1
        self.memory_kb.clear()
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(TIDEGATE, "up", "--json", "--port", str(self._port)),
                stdout=PIPE,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            if await self._process.stdout.readline():
                self.is_ready.set()
            await self._process.wait()
        finally:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.terminate()
            await self._process.wait()

    @property
    def log_file(self) -> Path:
        """Everything that the processes of this member logged."""
        return self._folder / f"member-{self.number}.log"

    @property
    def logged_lines(self) -> int:
        """How many lines it logged so far, without those that each changing request of the load causes."""
        if not self.log_file.exists():
            return 0
        with self.log_file.open("rb") as log:
            return sum(1 for line in log if not any(event in line for event in PER_REQUEST))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the running process, if there is one."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def sample_memory(self, at_s: float) -> None:
        """Record the resident memory of the running process."""
        if self._process is not None and self._process.returncode is None and self.is_ready.is_set():
            with suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
                self.memory_kb.append((at_s, pages * _PAGE_KB))


@dataclass(frozen=True)
class Upstreams:
    """The simulated APIs; each counts the requests that arrive."""

    github: github.GithubSimulator
    game: game.GameSimulator
    market: marketplace.MarketplaceSimulator


@dataclass
class Deployment:
    """Everything that faults and load act on."""

    upstreams: Upstreams
    valkey: LosableValkey
    database_url: str
    """For the driver: direct, not through the proxy."""
    members: list[Member]
    folder: Path
    proxy: Proxy | None = None
    """In front of PostgreSQL; None with SQLite."""
    server: Postgres | None = None
    database_name: str = ""
    has_own_disk: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def sqlite_file(self) -> Path:
        """The database file, with SQLite."""
        return self.folder / "data" / "tidegate.db"

    async def start(self) -> None:
        """Start all members and wait until each has answered once."""
        self._tasks = [asyncio.create_task(member.run()) for member in self.members]
        for member in self.members:
            while not await occurs(member.is_ready, within_s=1.0):
                if member.incarnation > _MOST_STARTS:
                    raise RuntimeError(f"tidegate up does not start: {member.log_file.read_text()[-2000:]}")

    async def stop(self) -> None:
        """Stop all members in an orderly way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_deployment(database: SqlName, members: int, folder: Path) -> AsyncGenerator[Deployment]:
    """Servers, simulators and members that are not started yet."""
    async with AsyncExitStack() as stack:
        data = folder / "data"
        data.mkdir(mode=0o700)
        has_own_disk = database == "sqlite" and _mount(data)
        if has_own_disk:
            stack.callback(subprocess.run, ["umount", str(data)], check=False)
        valkey = stack.enter_context(LosableValkey(keeps=True))
        upstreams = Upstreams(
            github=await stack.enter_async_context(github.GithubSimulator(_github())),
            game=await stack.enter_async_context(game.GameSimulator(_game())),
            market=await stack.enter_async_context(marketplace.MarketplaceSimulator(_market())),
        )
        deployment = Deployment(upstreams, valkey, "", [], folder, has_own_disk=has_own_disk)
        for_members = deployment.database_url = f"sqlite:///{deployment.sqlite_file}"
        if database == "postgres":
            server = sql_server("postgres")
            assert isinstance(server, Postgres)
            name = await stack.enter_async_context(server.database())
            deployment.proxy = await stack.enter_async_context(Proxy(server.port))
            deployment.server, deployment.database_name = server, name
            deployment.database_url = server.url(name)
            for_members = server.url(name, port=deployment.proxy.port)
        environment = _environment(upstreams, valkey.url, for_members, data)
        ports = free_ports(members)
        deployment.members = [Member(number, port, environment, folder) for number, port in enumerate(ports)]
        yield deployment


def settings_of(upstreams: Upstreams, valkey_url: str, database_url: str, data: Path) -> dict[str, Any]:
    """The settings that the members and the driver share."""
    return {
        "data_dir": str(data),
        "auto_migrate": True,
        "valkey_url": valkey_url,
        "database_url": database_url,
        "github": {"api_url": upstreams.github.url},
        "gate": {"window": 20, "floor": 0, "concurrency": 8},
        "collect": {"max_attempts": 3},
        "crawl": {"delay": CRAWL_GAP_S, "first_rest": 5},
        "upstream": {"private_hosts": ["127.0.0.1"]},
        "snapshots": {"game": {"url": upstreams.game.url, "api_key": upstreams.game.api_key, "ttl": 5}},
        "limiter": {
            "limits": [
                {"name": "second", "permits": CHARACTERS_PER_S, "window": 1},
                {"name": "low", "permits": CHARACTERS_PER_S * 7 // 10, "window": 1, "priorities": ["low"]},
            ],
            "rates": [],
        },
        "log": {"level": "info", "format": "json"},
    }


def _environment(upstreams: Upstreams, valkey_url: str, database_url: str, data: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "GITHUB_TOKEN"))}
    return ours | _flat("TIDEGATE", "_", settings_of(upstreams, valkey_url, database_url, data))


def _flat(prefix: str, joint: str, values: dict[str, Any]) -> dict[str, str]:
    """Settings as environment variables: names of nested settings are joined by two underscores."""
    found: dict[str, str] = {}
    for name, value in values.items():
        variable = f"{prefix}{joint}{name.upper()}"
        if isinstance(value, dict):
            found |= _flat(variable, "__", value)
        else:
            found[variable] = value if isinstance(value, str) else json.dumps(value)
    return found


def _mount(folder: Path) -> bool:
    """Give a folder a small disk of its own, so that it can be filled. Needs root; False where that is refused."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m,mode=700", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def locked(path: Path) -> sqlite3.Connection:
    """Hold the write lock of a SQLite file until the connection is closed."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def _github() -> github.SimulatorConfig:
    return github.SimulatorConfig(
        world=github.WorldShape(users=8, repositories=4),
        limits=github.LimitSettings(quota=600, window_s=20),
        behaviour=github.Behaviour(
            latency_ms=30,
            events_late_s=(0, 0),
            error_pause_s=0.1,
            hang_s=5,
            faults=github.parse_faults(_GITHUB_FAULTS),
        ),
    )


def _game() -> game.GameConfig:
    return game.GameConfig(
        world=game.WorldShape(
            subjects=SUBJECTS, body_bytes=20_000, kept_bytes=8_000, tempi=(game.Tempo(share=1, every_s=10),)
        ),
        limits=game.LimitSettings(per_second=CHARACTERS_PER_S, strikes_until_ban=None),
        behaviour=game.Behaviour(latency_ms=30, hang_s=5, faults=game.parse_faults(_GAME_FAULTS)),
    )


def _market() -> marketplace.MarketplaceConfig:
    return marketplace.MarketplaceConfig(
        world=marketplace.WorldShape(hosts=2, products=40, keywords=4),
        politeness=marketplace.Politeness(delay_s=CRAWL_GAP_S),
        behaviour=marketplace.Behaviour(
            latency_ms=20, hang_s=5, retry_after_s=1, faults=marketplace.parse_faults(_MARKET_FAULTS)
        ),
    )
