"""Speaking to Kafka: with which options, for how long, and what its errors are in our words."""

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
"""Between two attempts at what a busy cluster does later."""
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
    """What all of the driver's clients have."""

    async def start(self) -> None:
        """Connect."""
        ...


AnyClient = TypeVar("AnyClient", bound=KafkaClient)
_T = TypeVar("_T")


def client_options(settings: KafkaSettings, *, request_timeout_ms: int | None = None) -> dict[str, Any]:
    """What every client of the driver is given. A request has the time of the settings, unless one is given."""
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
async def speaking(settings: KafkaSettings, what: str) -> AsyncGenerator[None]:
    """A scope in which Kafka is asked for `what`: it has `answer_within`, and its errors become ours."""
    within_s = settings.answer_within.total_seconds()
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        message = f"{settings.address}: {what} took longer than {within_s:g} s"
        raise Unavailable(message, server=settings.address) from None
    except (errors.KafkaError, OSError) as error:
        raise in_our_words(settings, what, error) from None


async def insist(settings: KafkaSettings, what: str, ask: Callable[[], Awaitable[_T]]) -> _T:
    """The answer to `ask`, which is asked again while the cluster says that it is busy with itself."""
    async with speaking(settings, what):
        for attempt in count(1):
            try:
                return await ask()
            except errors.KafkaError as error:
                if not error.retriable or isinstance(error, errors.UnknownTopicOrPartitionError):
                    raise
                await asyncio.sleep(PAUSES.delay(attempt).total_seconds())
    raise AssertionError("it goes on until the time is over")


def in_our_words(settings: KafkaSettings, what: str, error: Exception) -> Unavailable:
    """What the driver's error means to our callers."""
    name = type(error).__name__
    if isinstance(error, _REFUSALS):
        # Without `what`: one missing right refuses several operations, and the log has one line for each reason.
        return ServerRefused(settings.address, name, remedy="See the rights of our user, and the settings")
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        name = f"a topic is missing. {CREATE_TOPICS}"
    return Unavailable(f"{settings.address}: {what}: {name}", server=settings.address)


class LazyClient(Generic[AnyClient]):
    """A client that connects when it is first asked for, and again after it failed.

    So a process comes up, and does what needs no Kafka, while Kafka is away.
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
        """The client, connected; raises `Unavailable`."""
        async with self._one:
            if self._client is None:
                client = self._make()
                try:
                    async with speaking(self._settings, "to connect"):
                        await client.start()
                except BaseException:
                    await stop_in_time(self._stop(client))
                    raise
                self._client = client
            return self._client

    async def close(self) -> None:
        """Let go of it; whoever asks again has it connect anew."""
        async with self._one:
            client, self._client = self._client, None
            if client is not None:
                await stop_in_time(self._stop(client))


async def stop_in_time(stopping: Coroutine[Any, Any, None]) -> None:
    """A client that cannot say goodbye, because nobody listens, is left as it is."""
    # A task of its own: the driver may end it with a cancellation that was not meant for us.
    task = asyncio.create_task(stopping)
    await asyncio.wait({task}, timeout=_STOP_WITHIN_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def stop_consumer(consumer: AIOKafkaConsumer) -> None:
    """As its own `stop`, and the connections are closed also where that fails half way, for want of a broker."""
    try:
        await consumer.stop()
    finally:
        await consumer._client.close()  # pyright: ignore[reportPrivateUsage]


def _tls(settings: KafkaSettings) -> ssl.SSLContext:
    return create_ssl_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
