"""Whole deployments of real processes, small and quick: a worker counts as dead after three seconds of silence."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chaos.deployment import Servers, Site, open_site
from chaos.fleet import ForkServerClient
from chaos.servers import LosableValkey

from tests.servers.migrated import migrated_folder
from tests.servers.registry import record_used
from tests.servers.valkey import version_of
from tidegate.storage.valkey.embedded import server_binary
from tidegate.systems.github import ESSENTIAL
from tidegate_simulators.github import Behaviour, LimitSettings, SimulatorConfig, Sizes, WorldShape

QUICK = {"lease": 3, "renew_every": 0.3}
"""A worker that is held up for less than the difference does not count as dead."""
PATIENT: dict[str, Any] = {}
"""As by default: where nobody dies, a worker on a slow machine must not be taken for dead, and its calls made again."""
SMALL = Sizes(issues=7, pulls=5, commits=9)
CALM = Behaviour(error_pause_s=0, hang_s=0, drip_s=0)
LIMITS = {"concurrency": 20, "per_minute": 100_000, "floor": 0}

Open = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServerClient]:
    """Where the workers of all tests come from."""
    with ForkServerClient() as fork_server:
        yield fork_server


@pytest.fixture
def losable() -> Iterator[LosableValkey]:
    """A Valkey that may be lost."""
    record_used("Valkey, on a port", version_of(server_binary()))
    with LosableValkey() as server:
        yield server


@pytest.fixture
def site(fork_server: ForkServerClient, losable: LosableValkey, tmp_path: Path) -> Open:
    """Opens a site: on SQLite and a Valkey of its own, unless told otherwise."""

    @asynccontextmanager
    async def opened(
        *,
        servers: Servers | None = None,
        users: int = 1,
        repositories: int | None = 1,
        sizes: Sizes | None = SMALL,
        events: int | None = 20,
        quirks: bool = False,
        operators: int = 1,
        github_limits: LimitSettings | None = None,
        behaviour: Behaviour = CALM,
        include: Iterable[str] = ESSENTIAL,
        membership: dict[str, Any] | None = None,
        upstream: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
    ) -> AsyncGenerator[Site]:
        config = SimulatorConfig(
            world=WorldShape(
                users=users,
                repositories=repositories,
                sizes=sizes,
                events=events,
                quirks=quirks,
                operators=operators,
            ),
            limits=github_limits or LimitSettings(),
            behaviour=behaviour,
        )
        settings = {"membership": QUICK if membership is None else membership, "upstream": upstream or {}}
        async with open_site(
            fork_server,
            await migrated_folder(tmp_path),
            servers or Servers(valkey_url=losable.url),
            config,
            settings=settings,
            limits=limits or LIMITS,
            include=include,
        ) as opened:
            yield opened

    return opened


async def assert_all_is_well(site: Site, run_ids: list[int], *, failed: int = 0) -> None:
    """Every document is there and true, counters agree, every run ended once, and no limit was broken."""
    compared = await site.comparison()
    assert compared.differences == []
    assert await site.disagreements(run_ids) == []
    assert sum([(await site.orchestrator.show(run_id)).failed_jobs for run_id in run_ids]) == failed
    assert site.github.report().violations == {}
