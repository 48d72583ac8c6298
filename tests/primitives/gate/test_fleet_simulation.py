"""A small fleet on a virtual clock with the real scripts; `python -m chaos.simulation` plays 100 workers."""

from random import Random

import msgspec
import pytest
from chaos.simulation.fleet import Fleet, Plan
from chaos.simulation.upstream import Upstream, UpstreamLimits

from tidegate.storage.valkey import Valkey

SMALL = Plan(
    seed=5, workers=6, credentials=12, pools=2, jobs_per_credential=16, small_runs=3, small_jobs=6, room=12, faults=8
)


async def test_a_fleet_with_faults_breaks_no_invariant(embedded: Valkey):
    report = await Fleet(embedded, SMALL).play()

    assert report.broken == []
    assert report.happened["workers killed"] + report.happened["workers frozen"] >= 4
    assert report.happened["messages taken over"] > 0
    assert report.calls >= report.jobs == 192


async def test_a_fleet_that_calls_with_permits_of_dead_workers_breaks_limits(embedded: Valkey):
    report = await Fleet(embedded, msgspec.structs.replace(SMALL, seed=2, reuses_permits=True)).play()

    assert any("calls in a window, 8 allowed" in broken for broken in report.broken)


@pytest.mark.full
async def test_a_plan_always_has_the_same_history(embedded: Valkey):
    first, second = [await Fleet(embedded, SMALL).play() for _ in range(2)]

    assert first == second


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (UpstreamLimits(quota=2), "3 calls in a window, 2 allowed"),
        (UpstreamLimits(at_once=2), "3 calls at once, 2 allowed"),
        (UpstreamLimits(per_minute=2), "3 calls in a minute, 2 allowed"),
    ],
)
def test_a_call_beyond_a_limit_of_the_simulated_upstream_is_reported(limits: UpstreamLimits, said: str):
    upstream = Upstream(["token"], limits, Random(1))
    for at_ms in (1, 2, 3):
        upstream.arrive("token", at_ms, is_faulty=False)

    assert [f"token at 3 ms: {said}"] == upstream.violations
