"""The simulator as a server: in this process for tests and the demo, or in one of its own."""

from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from tidegate_simulators.admin import PREFIX
from tidegate_simulators.clock import from_ms, to_ms
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.game.admin import Admin
from tidegate_simulators.game.clock import WorldClock
from tidegate_simulators.game.config import GameConfig
from tidegate_simulators.game.faults import Faults
from tidegate_simulators.game.key_limits import KeyAccounts
from tidegate_simulators.game.ledger import Ledger, Report
from tidegate_simulators.game.names import name_of
from tidegate_simulators.game.request_handler import GameRequestHandler
from tidegate_simulators.game.world import World
from tidegate_simulators.http_server import HttpServer, Reply, read_request
from tidegate_simulators.stalls import LoopMonitor


class Truth(msgspec.Struct, frozen=True):
    """What a character is at one moment."""

    subject: int
    version: int
    changed_at: datetime | None
    """When it became so; None: it has always been."""
    kept: dict[str, Any]
    """The fields of `KEPT_FIELDS`, as an answer at that moment has them."""


class GameSimulator:
    """A game API of one's own: `async with GameSimulator(config) as sim: ... sim.url ... sim.report()`."""

    def __init__(self, config: GameConfig | None = None, clock: WorldClock | None = None) -> None:
        self.config = config or GameConfig()
        shape, behaviour = self.config.world, self.config.behaviour
        self.world = World(shape)
        self.clock = clock or WorldClock(shape.epoch, shape.speed)
        self.faults = Faults(shape.seed, behaviour.faults)
        self.ledger = Ledger(self.config.subjects_counted)
        self._accounts = KeyAccounts(shape.seed, self.config.limits)
        self._monitor = LoopMonitor(is_enabled=self.clock.runs_by_itself)
        self._handler = GameRequestHandler(
            self.world,
            self.clock,
            accounts=self._accounts,
            faults=self.faults,
            ledger=self.ledger,
            behaviour=behaviour,
            monitor=self._monitor,
        )
        self._admin = Admin(self)
        self._server = HttpServer(self._handle, name="game", timing=behaviour, traffic=self.ledger)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; from now on `url` is where."""
        await self._server.start(self.config.host, self.config.port)
        self._monitor.start()
        self.clear()

    async def stop(self) -> None:
        """Stop listening, and close all connections that still wait."""
        self._monitor.stop()
        await self._server.stop()

    @property
    def url(self) -> str:
        """The address at which it listens."""
        return self._server.url

    @property
    def api_keys(self) -> list[str]:
        """The keys that are known, each with limits of its own."""
        return list(self._accounts.keys)

    @property
    def api_key(self) -> str:
        """The first of them. It goes into the header X-Api-Key."""
        return self._accounts.keys[0]

    def name_of(self, subject: int) -> str:
        """The name by which `/v1/ids` finds a character."""
        return name_of(subject)

    def truth(self, subject: int, at: datetime | None = None) -> Truth | None:
        """What a character is at a moment of the world, or now, to compare a copy with; None: it does not exist."""
        if at is not None and at.tzinfo is None:
            raise InvalidArgument("at", at, "must name its time zone")
        state = self.world.state(subject, self.clock.now_ms() if at is None else to_ms(at))
        if state is None:
            return None
        changed_at = from_ms(state.changed_ms) if state.changed_ms else None
        return Truth(subject, state.version, changed_at, self._handler.documents.kept(state))

    def kept(self, subject: int, version: int) -> dict[str, Any]:
        """What an honest extraction of one version of a character has."""
        return self._handler.documents.kept(self.world.at_version(subject, version))

    def change(self, subject: int) -> int:
        """Change a character now; the version it has from now on."""
        now_ms = self.clock.now_ms()
        self.world.change(subject, now_ms)
        state = self.world.state(subject, now_ms)
        assert state is not None, "it could be changed"
        return state.version

    def calls_of(self, subject: int) -> int:
        """How many calls there were for one character."""
        return self.ledger.calls_of(subject)

    def report(self) -> Report:
        """What happened so far, and whether any limit was broken."""
        at_us, _ = self.clock.read()
        keys = [account.report(at_us) for account in self._accounts.all]
        return self.ledger.report(keys, self._monitor.report())

    def clear(self) -> None:
        """Reset the counts; windows of limits, strikes and bans are kept."""
        self.ledger.clear()
        self._monitor.clear()
        for account in self._accounts.all:
            account.clear()

    def pardon(self) -> None:
        """Forget all strikes, and end all bans."""
        for account in self._accounts.all:
            account.pardon()

    async def _handle(self, request: web.BaseRequest) -> Reply:
        read, body = await read_request(request)
        if read.path.startswith(PREFIX):
            return self._admin.handle(read, body)
        return self._handler.receive(read)
