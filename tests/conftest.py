"""What all tests share: real servers, and the table of them at the end."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.servers.registry import ServerTable, record_used, skip_or_fail
from tests.servers.sql import ALL_SQL, empty_database
from tests.servers.valkey import ALL_VALKEY, Cluster, Embedded, Redis7, ServerMissing, empty_valkey
from tidegate.database import Database
from tidegate.database.migrate import migrate
from tidegate.kernel.clock import ManualClock
from tidegate.valkey import Valkey


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ServerTable())


@pytest.fixture(params=ALL_SQL)
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """A new, empty database on each server in turn."""
    async with empty_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    """A new database on each server in turn, with all tables."""
    async with await Database.open(database_url) as opened:
        await migrate(opened)
        yield opened


@pytest.fixture(scope="session")
def embedded_url() -> Iterator[str]:
    """The embedded Valkey of this test process."""
    server = Embedded()
    record_used("Valkey, embedded", server.version)
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """A cluster of three, of this test process."""
    cluster = Cluster()
    record_used("Valkey, cluster of three", cluster.version)
    yield cluster.url
    cluster.stop()


@pytest.fixture(scope="session")
def redis7_url() -> Iterator[str]:
    """The system's Redis, in a process of our own."""
    try:
        server = Redis7()
    except ServerMissing as missing:
        skip_or_fail("Redis", str(missing))
    record_used("Redis", server.version)
    yield server.url
    server.stop()


@pytest.fixture(params=ALL_VALKEY)
def valkey_url(request: pytest.FixtureRequest) -> str:
    """The address of each server in turn, started when the first test asks for it."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def valkey(valkey_url: str) -> AsyncGenerator[Valkey]:
    """A connection to each server in turn, emptied first; other processes reach the same server at `valkey.url`."""
    async with empty_valkey(valkey_url) as connection:
        yield connection


@pytest.fixture
async def embedded(embedded_url: str) -> AsyncGenerator[Valkey]:
    """A connection to the embedded server alone, emptied first: for tests where the kind of server says nothing new."""
    async with empty_valkey(embedded_url) as connection:
        yield connection


@pytest.fixture
def clock() -> ManualClock:
    """Stands still until it is moved."""
    return ManualClock()
