"""What all tests share: real servers, and the table of them at the end."""

import faulthandler
import gc
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import assertion_cache, examples, tiers
from tests.open_connections import OpenConnections
from tests.servers.migrated import migrated_database
from tests.servers.registry import ServerTable, record_used, skip_or_fail
from tests.servers.sql import ALL_SQL, empty_database
from tests.servers.valkey import ALL_VALKEY, Cluster, Embedded, Redis7, ServerMissing, empty_valkey
from tidegate.core.clock import ManualClock
from tidegate.core.telemetry.logs import configure_logs
from tidegate.runtime import outage
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey

SLOW_TO_START = ("kafka", "s3", "sqs", "mongo", "mariadb", "postgres", "browser")
LONG = ("faults/test_campaign", "http/test_fuzzing", "browser/test_access", "ticketing/test_sale")
FIRST = (*LONG, *SLOW_TO_START)
TEARDOWN_WITHIN_S = 240


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    tier = tiers.tier_of_run(config)
    is_quick = tier is tiers.Tier.QUICK
    config.pluginmanager.register(OpenConnections())
    for marker in tiers.MARKERS:
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(ServerTable(left_out="not in this tier: make test-all" if is_quick else None))
    examples.use(tier)
    # No deadline: a busy machine is slow, and no property says how fast anything is.
    settings.register_profile(
        "tidegate",
        max_examples=examples.examples(),
        deadline=None,
        derandomize=is_quick,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("tidegate")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepare what all workers need, before they start."""
    config = session.config
    is_whole_suite = config.args_source is config.ArgsSource.TESTPATHS
    if is_whole_suite and config.getoption("numprocesses", default=None) and not sys.dont_write_bytecode:
        tests, tier = Path(__file__).parent, tiers.tier_of_run(config)
        modules = [*tests.rglob("test_*.py"), *tests.rglob("conftest.py")]
        assertion_cache.fill(config, [path for path in modules if not tiers.is_ignored(path, tier)])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.is_ignored(collection_path, tiers.tier_of_run(config)) or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier, and sort tests that need the same slow server together.

    pytest-xdist gives each worker a contiguous part of the list, so one worker starts the server, not each. Another
    worker only takes tests from the end of that part. The longest tests come first: started last, all workers would
    wait for them.
    """
    is_filtered = bool(config.option.keyword or config.option.markexpr)
    items[:], others = tiers.split(items, tiers.tier_of_run(config), is_filtered=is_filtered)
    config.hook.pytest_deselected(items=others)

    def slowest_of(item: pytest.Item) -> int:
        return next((n for n, name in enumerate(FIRST) if name in item.nodeid), len(FIRST))

    items.sort(key=slowest_of)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for garbage among what the tests make, and less often.

    What was imported and collected stays to the end, and walking over it again and again took up to a third of the time
    of a test.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """End the test process when a teardown hangs, with the stacks of all threads on standard error.

    pytest-timeout interrupts a test once. Tasks that the interrupted test leaves behind are cancelled in the teardown,
    and a task that ignores this would block the run forever. pytest-xdist reports the test as failed and continues in
    a new process.
    """
    faulthandler.dump_traceback_later(TEARDOWN_WITHIN_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=ALL_SQL)
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """A new, empty database on each server in turn."""
    async with empty_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=ALL_SQL)
async def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[str]:
    """A new database with all tables, on each server in turn."""
    async with migrated_database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
async def database(migrated_url: str) -> AsyncGenerator[Database]:
    """As `migrated_url`, and opened."""
    async with await Database.open(migrated_url) as opened:
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


@pytest.fixture(autouse=True)
def _forget_outages() -> None:
    """Tests share servers: what one test logged about a server must not keep the next one from logging it."""
    outage.conditions.clear()


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """All that is logged, however little it matters."""
    lines = StringIO()
    configure_logs("json", "debug", stream=lines)
    yield lines
    configure_logs(level="warning")
