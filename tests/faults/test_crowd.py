"""The crowd campaign of `make chaos`, in small."""

from pathlib import Path

import pytest
from chaos.crowd import CrowdPlan, conduct


@pytest.mark.crash
@pytest.mark.timeout(600)  # it gives up by itself, where nothing moves any more
async def test_a_crowd_is_let_in_once_each_and_in_order_whoever_dies(tmp_path: Path):
    """Processes are killed, Valkey is, too, comes back without its last moments, and once with nothing."""
    plan = CrowdPlan(
        people=400,
        joiners=2,
        admitters=2,
        capacity=150,
        database="sqlite",
        kill_every_s=0.5,
        valkey_every_s=0.7,
        power_failures=0.7,
        losses=1,
    )
    verdict = await conduct(plan, tmp_path)

    assert verdict.breaches == []
    assert 0 < verdict.most_inside <= verdict.capacity
    assert verdict.killed > 0
    assert verdict.valkey_lost == 1
    assert verdict.power_failures + verdict.valkey_killed > 1, "the last blow comes when all are gone"
