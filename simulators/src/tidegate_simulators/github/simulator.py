"""The simulator as a server: in this process for tests and the demo, or in one of its own."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl

from aiohttp import web

from tidegate_simulators.clock import Clock, SystemClock
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github.admin import Admin
from tidegate_simulators.github.api import Api
from tidegate_simulators.github.calls import Call, Caller, Owner
from tidegate_simulators.github.config import SimulatorConfig
from tidegate_simulators.github.corruption import AnswerCorrupter
from tidegate_simulators.github.credentials import BadCredentials, Credentials
from tidegate_simulators.github.faults import Faults
from tidegate_simulators.github.ledger import Ledger, Needed, Report
from tidegate_simulators.github.mutations import Mutations
from tidegate_simulators.github.request_handler import GithubRequestHandler
from tidegate_simulators.github.routes import match
from tidegate_simulators.github.secondary import SecondaryLimits
from tidegate_simulators.github.sending import Sender
from tidegate_simulators.github.truth import ESSENTIAL, Truth, perfect_calls, truth
from tidegate_simulators.github.webhooks import Webhooks
from tidegate_simulators.github.windows import Windows
from tidegate_simulators.github.world import World
from tidegate_simulators.stalls import LoopMonitor

_LONGEST_DRAIN_S = 1


class GithubSimulator:
    """A GitHub of one's own: `async with GithubSimulator(config) as sim: ... sim.url ... sim.report()`."""

    def __init__(self, config: SimulatorConfig | None = None, clock: Clock | None = None) -> None:
        self.config = config or SimulatorConfig()
        self._clock = clock or SystemClock()
        limits, behaviour = self.config.limits, self.config.behaviour
        self.world = World(self.config.world, self._clock)
        self.credentials = Credentials(self.world, limits)
        self.webhooks = Webhooks(self.world, behaviour)
        self.mutate = Mutations(self.world, behaviour.restless)
        self.faults = Faults(self.config.world.seed, behaviour.faults)
        self.ledger = Ledger()
        self._windows = Windows(limits)
        self._secondary = SecondaryLimits(limits, self.ledger)
        self._api = Api(
            self.world,
            self.credentials,
            self._windows,
            secondary=self._secondary,
            mutations=self.mutate,
            behaviour=behaviour,
        )
        self.extras = self._api.extras
        self.corrupter = AnswerCorrupter(self.world)
        self._handler = GithubRequestHandler(
            self._api,
            self._windows,
            self._secondary,
            faults=self.faults,
            ledger=self.ledger,
            behaviour=behaviour,
            corrupter=self.corrupter,
        )
        self._monitor = LoopMonitor(is_enabled=isinstance(self._clock, SystemClock))
        self._admin = Admin(self)
        self._sender = Sender(behaviour)
        self._runner: web.ServerRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; from now on `url` is where."""
        for login in (*self.world.operators(), *self.world.logins()):
            self.credentials.token_of(login)
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=_LONGEST_DRAIN_S)
        await self._runner.setup()
        host, port = self.config.host, self.config.port
        try:
            await web.TCPSite(self._runner, host, port, backlog=1_024).start()
        except OSError as error:
            await self._runner.cleanup()
            raise InvalidArgument("port", port, f"cannot listen there on {host}: {error.strerror}") from None
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._monitor.start()
        self.webhooks.start()

    async def stop(self) -> None:
        """Stop listening, and close all connections that still wait."""
        self._monitor.stop()
        await self.webhooks.stop()
        self._sender.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def token_of(self, login: str, ordinal: int = 0) -> str:
        """A token of a user or an operator; all tokens of one owner share one allowance."""
        return self.credentials.token_of(login, ordinal)

    def truth(self, login: str) -> Truth:
        """Everything that can be read of a user now, to compare a copy with."""
        return truth(self.world, login, self.config.behaviour)

    def perfect_calls(self, logins: Iterable[str] | None = None, include: Iterable[str] = ESSENTIAL) -> Needed:
        """What a perfect collector would spend on these users (on all, unless given)."""
        wanted = self.world.logins() if logins is None else logins
        return perfect_calls(self.world, wanted, include, self.config.behaviour)

    def report(self, logins: Iterable[str] | None = None, include: Iterable[str] | None = None) -> Report:
        """What happened so far; with `include`, also what a perfect collector would have spent."""
        self.ledger.mutations = self._api.mutated
        needed = None if include is None else self.perfect_calls(logins, include)
        windows = self._windows.uses(self._clock.now().timestamp())
        return self.ledger.report(windows, self._monitor.report(), needed)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, raw_query = request.raw_path.partition("?")
        if path.startswith("/_sim/"):
            return await self._admin.handle(request, path, dict(parse_qsl(raw_query)))
        call, problem = await self._call(request, path, raw_query)
        standing = self._secondary.of(call)
        standing.at_once += 1
        try:
            return await self._sender.send(request, self._handler.receive(call, problem))
        finally:
            standing.at_once -= 1

    async def _call(self, request: web.BaseRequest, path: str, raw_query: str) -> tuple[Call, str | None]:
        """The request, its caller, and what is wrong with the credentials, if anything."""
        body = await request.read() if request.can_read_body else b""
        at, address = self._clock.now().timestamp(), request.remote or "unknown"
        problem = None
        try:
            caller = self.credentials.identify(request.headers.get("Authorization"), address, at)
        except BadCredentials as bad:
            caller, problem = Caller(Owner("address", 0, address), "bad credentials"), str(bad)
        call = Call(
            method=request.method,
            origin=f"http://{request.headers.get('Host', '')}",
            path=path,
            raw_query=raw_query,
            query=dict(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {},
            match=match(request.method, path),
            headers=request.headers,
            body=body,
            caller=caller,
            at=at,
            delay_s=self._monitor.delay_us() / 1e6,
        )
        return call, problem
