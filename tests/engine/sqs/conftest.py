"""A real server that speaks SQS, and queues of their own for every test."""

from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta

import pytest

from tests.servers.moto import REGION
from tests.servers.proxy import Proxy
from tests.servers.sqs import ENVIRONMENT, SqsServer, sqs_server
from tidegate.engine.sqs.opening import open_queues
from tidegate.engine.sqs.queue import Queue
from tidegate.engine.sqs.settings import AwsSettings


@pytest.fixture(scope="session")
def sqs() -> Iterator[SqsServer]:
    with sqs_server() as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the SDK looks for them."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(sqs: SqsServer) -> str:
    return sqs.make_queue()


def settings_for(sqs: SqsServer, url: str, *, endpoint: str | None = None) -> AwsSettings:
    return AwsSettings(
        region=REGION,
        endpoint_url=endpoint or sqs.endpoint,
        trigger_queue_url=url,
        task_queue_url=url,
        visibility_timeout=timedelta(seconds=1),
    )


@pytest.fixture
async def queue(sqs: SqsServer, url: str) -> AsyncGenerator[Queue]:
    async with open_queues(settings_for(sqs, url)) as (_, tasks):
        assert tasks is not None
        yield tasks


@pytest.fixture
async def wire(sqs: SqsServer) -> AsyncGenerator[Proxy]:
    """The way to the server, which can be cut."""
    async with Proxy(sqs.port) as proxy:
        yield proxy


@pytest.fixture
async def distant(sqs: SqsServer, url: str, wire: Proxy) -> AsyncGenerator[Queue]:
    """The same queue as `queue`, at the other end of the wire."""
    async with open_queues(settings_for(sqs, url, endpoint=f"http://127.0.0.1:{wire.port}")) as (_, tasks):
        assert tasks is not None
        yield tasks
