"""Connection to every kind of server, and translation of client errors to the error classes of Tidegate."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.driver_info import DriverInfo

from tidegate.core.arguments import require_name, require_not_negative
from tidegate.core.errors import ServerRefused, TidegateError, Unavailable, ValkeyRefused, ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.core.telemetry.disks import Disk
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import REDIS_COMMAND_DURATION
from tidegate.storage.valkey.client_connections import CommandsInFlight, IdleConnections
from tidegate.storage.valkey.keys import Unit
from tidegate.storage.valkey.urls import require_url, without_password

_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}


@dataclass(frozen=True)
class ServerInfo:
    """The other end, as it described itself."""

    product: str
    version: str
    is_cluster: bool
    can_block: bool
    """False where the server forbids blocking reads; readers then pause between empty reads."""
    persists: bool
    """Whether it writes an append-only file: without one, a restart is repaired from SQL, more slowly."""
    evicts: bool
    """Whether it may throw keys away when memory is short; it should not."""


async def examine(valkey: "Valkey") -> ServerInfo:
    """Ask the server about itself; raise `ServerRefused` where it cannot serve us."""
    facts = await _facts(valkey)
    product, version = _product(facts)
    oldest = _OLDEST[product]
    if tuple(int(part) for part in version.split(".")[:2]) < oldest:
        raise ServerRefused(
            valkey.address,
            f"{product} {version} is too old",
            remedy=f"Tidegate needs {product} {'.'.join(map(str, oldest))} or newer",
        )
    if facts.get("role") not in {"master", "primary"}:
        raise ServerRefused(
            valkey.address, "the server is a read-only replica", remedy="Point TIDEGATE_VALKEY_URL at the primary"
        )
    return ServerInfo(
        product=product,
        version=version,
        is_cluster=valkey.is_cluster,
        can_block=await _can_block(valkey),
        persists=bool(facts.get("aof_enabled")),
        evicts=facts.get("maxmemory_policy") not in {None, "noeviction"},
    )


async def _facts(valkey: "Valkey") -> dict[str, Any]:
    reply = await valkey.execute("INFO")
    if valkey.is_cluster and reply and all(isinstance(value, dict) for value in reply.values()):
        return next(iter(reply.values()))
    if str(reply.get("cluster_enabled")) == "1" and not valkey.is_cluster:
        raise ServerRefused(
            valkey.address,
            "the server is a node of a cluster",
            remedy="Use redis+cluster:// (or rediss+cluster://) in TIDEGATE_VALKEY_URL",
        )
    return reply


def _product(facts: dict[str, Any]) -> tuple[str, str]:
    if "valkey_version" in facts:
        return "valkey", str(facts["valkey_version"])
    return "redis", str(facts["redis_version"])


async def _can_block(valkey: "Valkey") -> bool:
    """Whether the server allows blocking reads. The test read finds an entry at once, so it does not block."""
    key = valkey.unit("probe").key(new_id())
    replies = await valkey.pipeline([("RPUSH", key, "1"), ("PEXPIRE", key, 1000), ("BLPOP", key, 1), ("DEL", key)])
    if isinstance(replies[0], ServerRefused):
        return True  # it refuses every write for now, which says nothing about reads that wait
    if isinstance(replies[2], Unavailable) and not isinstance(replies[2], ServerRefused):
        raise replies[2]
    return not isinstance(replies[2], Exception)


log = get_logger(__name__)

_ANSWER_WITHIN_S = 5.0
_GRACE_S = 10.0
"""How much longer than requested a blocking command may take before the connection counts as dead."""
_AT_ONCE = 64
"""Commands in progress at one time, each on its own connection; further ones wait."""
_KEPT_IDLE = 4
"""Idle connections of each kind that stay open; others are closed when they are not needed for a while."""
_WAITING_AT_ONCE = 10_000
"""Bound of blocking commands. There are as many as readers; the bound only catches a leak."""

_TRANSIENT = (
    *(redis_errors.ConnectionError, redis_errors.TimeoutError, TimeoutError, OSError),
    *(redis_errors.ClusterError, redis_errors.TryAgainError, redis_errors.SlotNotCoveredError),
)
_TRANSIENT_CODES = frozenset({"BUSY", "UNBLOCKED"})
"""Error codes without a class in the client: a script blocks the server; `CLIENT UNBLOCK` ended a blocking read."""
_REFUSALS = {
    "MISCONF": ("the server cannot save to its disk, and takes no writes", "Its log says why"),
    "NOREPLICAS": ("the server lacks replicas, and takes no writes", "Start them, or lower its min-replicas-to-write"),
}
_NO_SPACE = "No space left on device"


class Valkey:
    """A server or a cluster, shared by all parts of this process.

    Ordinary commands are answered within seconds or fail; broken connections are retried a few times. Blocking commands
    use separate connections, on which a long silence is no error. They are not retried here, because only the reader
    knows how to handle a lost reply.
    """

    def __init__(self, url: str, *, prefix: str = "tidegate", disk: Disk | None = None) -> None:
        self.is_cluster = require_url(url).scheme.endswith("+cluster")
        self.url, self.prefix = url, require_name("prefix", prefix)
        self.address = without_password(url)
        self._disk = disk or Disk(self.address)
        # The client opens one connection per concurrent command, and fails if they become too many.
        self._turns = asyncio.Semaphore(_AT_ONCE)
        # Retried by the client: scripts and commands that are sent here are safe to repeat.
        self._client = _open(url, self.is_cluster, answer_within_s=_ANSWER_WITHIN_S, retries=3, at_once=_AT_ONCE)
        # Without a timeout for answers and without retries: a lost reply of a blocking read is the reader's concern.
        self._waiting = _open(url, self.is_cluster, answer_within_s=None, retries=0, at_once=_WAITING_AT_ONCE)
        self._in_flight = CommandsInFlight(self.address)
        self._idle = IdleConnections(self._client, keep=_KEPT_IDLE), IdleConnections(self._waiting, keep=_KEPT_IDLE)
        self._info: ServerInfo | None = None
        self.on_unavailable: Callable[[], None] = lambda: None
        """Called whenever the server could not be reached."""
        self.losses = 0
        """How often the server could not be reached. Its data may have been lost or changed since."""
        self.queued_until_s = 0.0
        """When, by the clock of the event loop, a command of this process last had to wait for a connection."""

    @classmethod
    async def connect(cls, url: str, *, prefix: str = "tidegate", disk: Disk | None = None) -> Self:
        """Connect. Raises `ServerRefused` if the server does not meet the requirements.

        `disk` is the disk of an embedded server, which is named when it is full.
        """
        valkey = cls(url, prefix=prefix, disk=disk)
        try:
            valkey._info = await examine(valkey)
            if valkey.is_cluster:  # concurrent first commands would each find a half-initialised client
                with valkey._our_errors():
                    await valkey._waiting.initialize()
        except BaseException:
            await valkey.close()
            raise
        log.info("valkey.connected", server=valkey.address, product=valkey.info.product, version=valkey.info.version)
        return valkey

    @property
    def info(self) -> ServerInfo:
        """Product, version and features of the server, determined when connecting."""
        assert self._info is not None, "use Valkey.connect"
        return self._info

    def unit(self, name: str) -> Unit:
        """The key family `name`, under the prefix of this connection."""
        return Unit(self.prefix, name)

    async def execute(self, *command: Any) -> Any:
        """Run one command and return its reply."""
        with self._our_errors():
            async with self._in_flight.command(), self._turn():
                began = time.perf_counter()
                try:
                    reply = await self._client.execute_command(*command)
                finally:
                    self._idle[0].note()
        REDIS_COMMAND_DURATION.observe(time.perf_counter() - began)
        return reply

    async def execute_blocking(self, *command: Any, within_s: float) -> Any:
        """Run one blocking command, which the server may answer only after `within_s` seconds."""
        require_not_negative("within_s", within_s)
        return await self.execute_apart(*command, within_s=within_s + _GRACE_S)

    async def execute_apart(self, *command: Any, within_s: float) -> Any:
        """Run one command on a separate connection: it waits for no other command, and is not retried."""
        with self._our_errors():
            async with self._in_flight.command(), asyncio.timeout(within_s):
                try:
                    return await self._waiting.execute_command(*command)
                finally:
                    self._idle[1].note()

    async def pipeline(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run many commands in one round trip, not as a transaction. A failed command has its error as reply."""
        if not commands:
            return []
        with self._our_errors():
            pipeline = self._client.pipeline() if self.is_cluster else self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            async with self._in_flight.command(), self._turn():
                began = time.perf_counter()
                try:
                    replies = await pipeline.execute(raise_on_error=False)
                finally:
                    self._idle[0].note()
        REDIS_COMMAND_DURATION.observe(time.perf_counter() - began)
        return [self._our_name(reply) or reply if isinstance(reply, Exception) else reply for reply in replies]

    async def ping(self) -> None:
        """Check that the server (each primary of a cluster) answers, independently of other commands."""
        nodes = {"target_nodes": RedisCluster.PRIMARIES} if self.is_cluster else {}
        with self._our_errors():
            async with self._in_flight.command():
                await self._waiting.execute_command("PING", **nodes)

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        # Asked before the wait: it tells that all connections were busy.
        is_queued = self._turns.locked()
        async with self._turns:
            if is_queued:
                self.queued_until_s = asyncio.get_running_loop().time()
            yield

    async def close(self) -> None:
        """Close every connection, also when cancelled; commands in flight and later ones raise `ValkeyUnavailable`."""
        # In a task of its own, which a cancellation of the caller does not reach.
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:  # the failure of one does not leave the others open
            stack.push_async_callback(_close_client, self._waiting)
            stack.push_async_callback(_close_client, self._client)
            for idle in self._idle:
                stack.push_async_callback(idle.stop)
            # First the commands in flight end. Then the callbacks run in reverse order: timers, then clients.
            await self._in_flight.close()

    @contextmanager
    def _our_errors(self) -> Generator[None]:
        try:
            with _cancellation_kept():
                yield
            if self._disk.is_full:
                self._disk.accepted()
        except Exception as error:
            if ours := self._our_name(error):
                if isinstance(ours, ValkeyUnavailable) and not isinstance(ours, ServerRefused):
                    # Refusals are not counted: a server that answers has lost no data.
                    self.losses += 1
                    self.on_unavailable()
                raise ours from error
            raise

    def _our_name(self, error: Exception) -> TidegateError | None:
        """Translate an error of the client; None for errors that only a defect can cause."""
        # The client of a cluster wraps the error of the node that it could not use.
        if isinstance(error, redis_errors.RedisClusterException) and isinstance(error.__cause__, Exception):
            if "mode is not enabled" in str(error.__cause__):
                return self._refusal("the server is no cluster", "Use redis:// (or rediss://) in TIDEGATE_VALKEY_URL")
            return self._our_name(error.__cause__)
        if isinstance(error, (redis_errors.AuthenticationError, redis_errors.NoPermissionError)):
            return self._refusal("the server refused our user or password", "Check TIDEGATE_VALKEY_URL")
        if isinstance(error, redis_errors.ReadOnlyError):
            return self._refusal("the server is a read-only replica", "Point TIDEGATE_VALKEY_URL at the primary")
        if isinstance(error, redis_errors.OutOfMemoryError):
            return self._refusal("the server is out of memory", "Raise its maxmemory, or give it less to hold")
        if isinstance(error, redis_errors.InvalidResponse):
            return self._refusal("the server is no Valkey or Redis", "Check TIDEGATE_VALKEY_URL")
        code = str(error).partition(" ")[0]
        if code == "MISCONF" and _NO_SPACE in str(error):
            return self._disk.refused()
        if code in _REFUSALS:
            return self._refusal(*_REFUSALS[code])
        if isinstance(error, _TRANSIENT) or code in _TRANSIENT_CODES:
            return ValkeyUnavailable(f"{self.address}: {str(error) or type(error).__name__}", server=self.address)
        return None

    def _refusal(self, what: str, remedy: str) -> ValkeyRefused:
        return ValkeyRefused(self.address, what, remedy=remedy)


@contextmanager
def _cancellation_kept() -> Generator[None]:
    """Raise a cancellation that the client lost.

    The client sends with `asyncio.wait_for`, which before Python 3.12 loses a cancellation that arrives exactly when
    the command is sent. The cancelled task would then continue and block in its next wait.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


@asynccontextmanager
async def connected(url: str, *, prefix: str = "tidegate") -> AsyncGenerator[Valkey]:
    """Connect for the length of a block."""
    valkey = await Valkey.connect(url, prefix=prefix)
    try:
        yield valkey
    finally:
        await valkey.close()


async def _close_client(client: Redis | RedisCluster) -> None:
    await client.aclose()
    if isinstance(client, RedisCluster):  # after a broken connection it would search its nodes and close nothing
        await client.nodes_manager.aclose()
        await client.nodes_manager.aclose("startup_nodes")


def _open(url: str, is_cluster: bool, *, answer_within_s: float | None, retries: int, at_once: int) -> Any:
    options: dict[str, Any] = {
        "protocol": 3,
        "legacy_responses": False,
        "socket_timeout": answer_within_s,
        "socket_connect_timeout": _ANSWER_WITHIN_S,
        "retry": Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), retries),
        "max_connections": at_once,
        "driver_info": _driver_info(),
    }
    if is_cluster:
        return RedisCluster.from_url(url.replace("+cluster", "", 1), **options)
    return Redis.from_url(url, **options)


@cache
def _driver_info() -> DriverInfo:
    """Built once: by default each new connection reads the metadata of the installed package."""
    return DriverInfo()
