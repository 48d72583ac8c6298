"""Connections to Kafka: client options, time limits, and translation of driver errors."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer, errors
from aiokafka.helpers import create_ssl_context

from tidegate.core.backoff import Backoff
from tidegate.core.clock import milliseconds
from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.driver_logs import limit_driver_log
from tidegate.systems.snapshots.settings import KafkaSettings

# Below this level the driver logs whole requests, and with them the password.
limit_driver_log("aiokafka", level=logging.WARNING)

CREATE_TOPICS = "Create the topics: tidegate snapshots topics --create"
_STOP_WITHIN_S = 5.0
PAUSES = Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=1))
"""Pauses between attempts while the cluster is busy."""
_REFUSALS = (
    errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.SaslAuthenticationFailed,
    errors.UnsupportedSaslMechanismError,
    errors.IncompatibleBrokerVersion,
    errors.InvalidReplicationFactorError,
)


class KafkaClient(Protocol):
    """Common interface of the driver's clients."""

    async def start(self) -> None:
        """Connect to the cluster."""
        ...


AnyClient = TypeVar("AnyClient", bound=KafkaClient)
_T = TypeVar("_T")


def client_options(settings: KafkaSettings, *, request_timeout_ms: int | None = None) -> dict[str, Any]:
    """Return the options of every client. The time limit of a request is that of the settings, unless given."""
    options: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in settings.servers.split(",")],
        "client_id": "tidegate",
        "security_protocol": settings.security,
        "request_timeout_ms": request_timeout_ms or milliseconds(settings.answer_within),
    }
    if settings.security.endswith("SSL"):
        options["ssl_context"] = _tls(settings)
    if settings.security.startswith("SASL"):
        assert settings.password is not None
        options["sasl_mechanism"] = settings.mechanism
        options["sasl_plain_username"] = settings.user
        options["sasl_plain_password"] = settings.password.get_secret_value()
    return options


@asynccontextmanager
async def translated_errors(settings: KafkaSettings, what: str) -> AsyncGenerator[None]:
    """Limit a block to `answer_within`, and convert its errors to `Unavailable` or `ServerRefused`.

    `what`: the operation, for the message.
    """
    within_s = settings.answer_within.total_seconds()
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        message = f"{settings.address}: {what} took longer than {within_s:g} s"
        raise Unavailable(message, server=settings.address) from None
    except (errors.KafkaError, OSError) as error:
        raise translate(settings, what, error) from None


async def retried(settings: KafkaSettings, what: str, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of `ask`, repeated while the cluster reports a retriable error."""
    async with translated_errors(settings, what):
        for attempt in count(1):
            try:
                return await ask()
            except errors.KafkaError as error:
                # The driver calls a missing topic retriable, but it does not appear by waiting: an
                # operator has to create it.
                if not error.retriable or isinstance(error, errors.UnknownTopicOrPartitionError):
                    raise
                await asyncio.sleep(PAUSES.delay(attempt).total_seconds())
    raise AssertionError("the loop ends by the time limit")


def translate(settings: KafkaSettings, what: str, error: Exception) -> Unavailable:
    """Convert an error of the driver."""
    name = type(error).__name__
    if isinstance(error, _REFUSALS):
        # Without `what`: one missing permission fails several operations, and the log has one line per reason.
        return ServerRefused(settings.address, name, remedy="Check the permissions of the user, and the settings")
    # Not a refusal: when the topic is created, the next attempt succeeds.
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        name = f"a topic is missing. {CREATE_TOPICS}"
    return Unavailable(f"{settings.address}: {what}: {name}", server=settings.address)


class LazyClient(Generic[AnyClient]):
    """A client that connects on first use, and again after it failed.

    So a process starts, and does everything that does not need Kafka, while Kafka is unavailable.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        make: Callable[[], AnyClient],
        stop: Callable[[AnyClient], Coroutine[Any, Any, None]],
    ) -> None:
        self._settings, self._make, self._stop = settings, make, stop
        self._client: AnyClient | None = None
        self._one = asyncio.Lock()

    async def get(self) -> AnyClient:
        """Return the connected client; raises `Unavailable`."""
        async with self._one:
            if self._client is None:
                client = self._make()
                try:
                    async with translated_errors(self._settings, "to connect"):
                        await client.start()
                # Also after a cancellation: a client that was started halfway has tasks and connections.
                except BaseException:
                    await stop_in_time(self._stop(client))
                    raise
                self._client = client
            return self._client

    async def close(self) -> None:
        """Close the client; the next `get` connects again."""
        async with self._one:
            client, self._client = self._client, None
            if client is not None:
                await stop_in_time(self._stop(client))


async def stop_in_time(stopping: Coroutine[Any, Any, None]) -> None:
    """Stop a client, but not longer than `_STOP_WITHIN_S`."""
    # In a separate task, because the driver may end it with a cancellation.
    task = asyncio.create_task(stopping)
    await asyncio.wait({task}, timeout=_STOP_WITHIN_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer; also close its connections if stopping fails because no broker is available."""
    try:
        await consumer.stop()
    finally:
        await consumer._client.close()  # pyright: ignore[reportPrivateUsage]


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    return create_ssl_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
