"""The crawl campaign of `make chaos`, in small."""

from pathlib import Path

import pytest
from chaos.crawl import CrawlPlan, conduct
from chaos.crawl_faults import FaultPlan


@pytest.mark.crash
async def test_a_crawl_loses_repeats_and_reorders_nothing_when_processes_die(tmp_path: Path):
    """Workers are killed, Valkey is, too, publications fail, and hosts answer with whatever they can think of."""
    plan = CrawlPlan(
        products=16,
        hosts=2,
        keywords=2,
        identities=12,
        delay_ms=5,
        crawl_delay_ms=8,
        latency_ms=1,
        faults="500@mini_shop=0.2,reset@detail=0.1,truncated=0.01,redirect=0.03,loop=0.01,invalid=0.01,wrong=0.01",
        lease_s=1.5,
        fault_plan=FaultPlan(workers=3, kill_every_s=0.5, fail_every_s=0.5, fail_for_s=0.1, valkey_every_s=0.8, most=2),
        database="sqlite",
    )
    verdict = await conduct(plan, tmp_path)

    assert verdict.breaches == []
    assert [told.tasks >= 4 * 16 for told in verdict.rounds] == [True, True]
    assert verdict.rounds[0].applied == 3 * 16
    assert verdict.rounds[1].not_modified > 0
    assert (verdict.killed, verdict.failures > 0) == (2, True)
