"""A small sale with everything that the large one has: `python -m chaos.sale`."""

from pathlib import Path

import pytest
from chaos.sale import SalePlan, conduct

SMALL = SalePlan(
    people=200,
    seats=20,
    shops=2,
    crowds=1,
    inside=8,
    paid_while_away=1,
    away_s=0.5,
    think_s=0.4,
    kill_every_s=3,
)


@pytest.mark.crash
@pytest.mark.timeout(600)  # it gives up by itself, where nothing moves any more
async def test_a_sale_keeps_its_rules_while_shops_are_killed_and_valkey_loses_its_data(tmp_path: Path):
    verdict = await conduct(SMALL, tmp_path)

    assert verdict.breaches == []
    assert verdict.sold == SMALL.seats
    assert [outage.payments > 0 for outage in verdict.outages] == [True, True]
    assert verdict.killed > 0
