"""The demo's proof does not depend on when the demo is started."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from chaos.demo import WORLD, attempt

from tidegate.core.clock import ManualClock
from tidegate_simulators.github import GithubSimulator, SimulatorConfig

SECOND = timedelta(seconds=1)
KEPT = timedelta(days=30)


def first_expiry() -> timedelta:
    """The time from the end of the generated past until the first event that is visible then is 30 days old."""
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    config = SimulatorConfig(world=msgspec.structs.replace(WORLD, epoch=epoch))
    simulator = GithubSimulator(config, ManualClock(epoch))
    happened = [event["created_at"] for login in simulator.world.logins() for event in simulator.truth(login).events]
    return datetime.fromisoformat(min(happened)) + KEPT - epoch


async def test_the_proof_holds_when_an_event_expires_between_collection_and_proof(tmp_path: Path):
    assert await attempt(tmp_path, started=first_expiry() - SECOND, passes=2 * SECOND)
