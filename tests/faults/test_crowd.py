"""The crowd campaign of `make chaos`, in small."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from chaos.crowd import CrowdPlan, conduct
from chaos.crowd_audit import Token, Verdict, judge_order


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


def test_the_judge_finds_everyone_who_was_overtaken_in_the_whole_history():
    """u10 was passed by eight and is long inside; u19 lost the place, came back and was passed by nobody."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    order = [*range(1, 10), *range(11, 19), 10, 20, 19]
    rows = [Token(f"u{place}", place, 10_000 + 100 * n, at, at) for n, place in enumerate(order)]
    since_ms = {**dict.fromkeys((row.user for row in rows), 1), "u19": 100 + order.index(20) + 1}
    verdict = Verdict(people=len(rows), capacity=len(rows))

    assert list(judge_order(rows, since_ms, verdict)) == ["1 were overtaken; u10 at 10 by 8"]
    assert (verdict.overtaken, verdict.most_passed) == (1, 8)
    assert list(judge_order(rows[:9], since_ms, Verdict())) == []
