"""The three simulators: quotas small enough that jobs wait, and faults that need attention."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate_simulators import game, github, marketplace

BROKEN_CHARACTER, GARBLED_CHARACTER = 13, 7
"""Asking for the one always fails, and the answer for the other is no JSON: their refreshes become dead letters."""
_CHARACTERS_PER_S = 25
"""How many of them may be asked for in a second: few, so that the limit is in sight."""


@dataclass(frozen=True)
class Ration:
    """What a token of the simulated GitHub may do, and how fast it answers."""

    quota: int = 150
    window_s: int = 30
    latency_ms: float = 150


@dataclass(frozen=True)
class Upstreams:
    """What the deployment collects from."""

    ration: Ration

    github: github.GithubSimulator
    game: game.GameSimulator
    market: marketplace.MarketplaceSimulator

    def environment(self) -> dict[str, str]:
        """The settings that lead there, and that make the demo brisk."""
        return {
            "TIDEGATE_GITHUB__API_URL": self.github.url,
            "TIDEGATE_GATE__WINDOW": f"{self.ration.window_s}s",
            "TIDEGATE_GATE__CONCURRENCY": "8",
            "TIDEGATE_GATE__FLOOR": "0",
            "TIDEGATE_COLLECT__MAX_ATTEMPTS": "2",
            "TIDEGATE_SNAPSHOTS__GAME__URL": self.game.url,
            "TIDEGATE_SNAPSHOTS__GAME__API_KEY": self.game.api_key,
            "TIDEGATE_SNAPSHOTS__GAME__TTL": "20s",
            "TIDEGATE_SNAPSHOTS__PREFETCH__HOT_EVERY": "30s",
            "TIDEGATE_LIMITER__LIMITS": msgspec.json.encode(_limits()).decode(),
            "TIDEGATE_LIMITER__RATES": "[]",
            "TIDEGATE_UPSTREAM__PRIVATE_HOSTS": '["127.0.0.1"]',
            "TIDEGATE_LOG__LEVEL": "error",
        }


@asynccontextmanager
async def open_upstreams(ration: Ration) -> AsyncGenerator[Upstreams]:
    """All three, for the length of a block."""
    async with AsyncExitStack() as stack:
        yield Upstreams(
            ration=ration,
            github=await stack.enter_async_context(github.GithubSimulator(_github(ration))),
            game=await stack.enter_async_context(game.GameSimulator(_game())),
            market=await stack.enter_async_context(marketplace.MarketplaceSimulator(_market())),
        )


def _github(ration: Ration) -> github.SimulatorConfig:
    return github.SimulatorConfig(
        world=github.WorldShape(users=25),
        limits=github.LimitSettings(quota=ration.quota, window_s=ration.window_s),
        behaviour=github.Behaviour(
            latency_ms=ration.latency_ms,
            events_late_s=(0, 0),
            error_pause_s=0.1,
            faults=github.parse_faults("502@repo.commits=0.1"),
        ),
    )


def _game() -> game.GameConfig:
    faults = f"400@{BROKEN_CHARACTER}=1,invalid@{GARBLED_CHARACTER}=1"
    return game.GameConfig(
        world=game.WorldShape(subjects=10_000, body_bytes=40_000),
        limits=game.LimitSettings(per_second=_CHARACTERS_PER_S),
        behaviour=game.Behaviour(latency_ms=30, faults=game.parse_faults(faults)),
    )


def _limits() -> list[dict[str, Any]]:
    return [
        {"name": "second", "permits": _CHARACTERS_PER_S, "window": "1s"},
        {"name": "low", "permits": _CHARACTERS_PER_S // 2, "window": "1s", "priorities": ["low"]},
    ]


def _market() -> marketplace.MarketplaceConfig:
    return marketplace.MarketplaceConfig(
        world=marketplace.WorldShape(hosts=2, products=60, keywords=4, steps_every_s=0.5),
        behaviour=marketplace.Behaviour(latency_ms=40, faults=marketplace.parse_faults("wrong@detail=0.02")),
    )
