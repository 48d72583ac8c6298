"""The three simulators: quotas small enough that waiting is seen, and faults that leave something to look after."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tidegate.simulators import game, github, marketplace

USERS, QUOTA, WINDOW_S = 25, 150, 30
BROKEN_CHARACTER = 13
"""Asking for it always fails: its refreshes become dead letters."""


@dataclass(frozen=True)
class Upstreams:
    """What the deployment collects from."""

    github: github.GithubSimulator
    game: game.GameSimulator
    market: marketplace.MarketplaceSimulator

    def environment(self) -> dict[str, str]:
        """The settings that lead there, and that make the demo brisk."""
        return {
            "TIDEGATE_GITHUB__API_URL": self.github.url,
            "TIDEGATE_GATE__WINDOW": f"{WINDOW_S}s",
            "TIDEGATE_GATE__CONCURRENCY": "8",
            "TIDEGATE_GATE__FLOOR": "0",
            "TIDEGATE_COLLECT__MAX_ATTEMPTS": "2",
            "TIDEGATE_SNAPSHOTS__GAME__URL": self.game.url,
            "TIDEGATE_SNAPSHOTS__GAME__API_KEY": self.game.api_key,
            "TIDEGATE_SNAPSHOTS__GAME__TTL": "20s",
            "TIDEGATE_LOG__LEVEL": "error",
        }


@asynccontextmanager
async def open_upstreams() -> AsyncGenerator[Upstreams]:
    """All three, for the length of a block."""
    async with AsyncExitStack() as stack:
        yield Upstreams(
            github=await stack.enter_async_context(github.GithubSimulator(_github())),
            game=await stack.enter_async_context(game.GameSimulator(_game())),
            market=await stack.enter_async_context(marketplace.MarketplaceSimulator(_market())),
        )


def _github() -> github.SimulatorConfig:
    return github.SimulatorConfig(
        world=github.WorldShape(users=USERS),
        limits=github.LimitSettings(quota=QUOTA, window_s=WINDOW_S),
        manners=github.Manners(
            latency_ms=150,
            events_late_s=(0, 0),
            error_pause_s=0.1,
            faults=github.parse_faults("502@repo.commits=0.1"),
        ),
    )


def _game() -> game.GameConfig:
    return game.GameConfig(
        world=game.WorldShape(subjects=10_000, body_bytes=40_000),
        limits=game.LimitSettings(per_second=500),
        manners=game.Manners(latency_ms=30, faults=game.parse_faults(f"400@{BROKEN_CHARACTER}=1")),
    )


def _market() -> marketplace.MarketplaceConfig:
    return marketplace.MarketplaceConfig(
        world=marketplace.WorldShape(hosts=2, products=60, keywords=4, steps_every_s=0.5),
        manners=marketplace.Manners(latency_ms=40, faults=marketplace.parse_faults("wrong@detail=0.02")),
    )
