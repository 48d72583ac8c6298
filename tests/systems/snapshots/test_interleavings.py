"""Random schedules of pauses, deaths and detours: no version goes back, no old worker's write wins, nothing is skipped
that nobody else does.

`python -m chaos.schedules` plays a million of them.
"""

from pathlib import Path

import pytest
from chaos.schedules.campaign import conduct
from chaos.schedules.environment import InMemory
from chaos.schedules.plan import ActionKind, plan, shrunk
from chaos.schedules.world import World

from tests.systems.snapshots.dependencies import RealDependencies

SEED = 7


def test_no_interleaving_breaks_an_invariant():
    tally = conduct(SEED, range(2_000))

    assert tally.failures == [], str(tally.failures[0])
    for event in (
        *("workers killed at work", "zombies' writes refused", "server lost its data", "clock set back"),
        *("askers killed before they published", "publishes failed", "obsolete events skipped"),
    ):
        assert tally.happened[event] > 50, event


@pytest.mark.full
def test_the_real_server_and_database_answer_every_step_like_the_simulated_ones(embedded_url: str, tmp_path: Path):
    simulated, real = World(InMemory()), World(RealDependencies(embedded_url, tmp_path))
    try:
        for number in range(40):
            steps = plan(SEED, number)
            simulated.play(steps)
            real.play(steps)
            assert real.seen == simulated.seen, number
    finally:
        assert isinstance(real.environment, RealDependencies)
        real.environment.close()


def test_a_failing_interleaving_is_reduced():
    steps = plan(SEED, 3)
    needed = (int(ActionKind.TAKE), int(ActionKind.KILL))

    few = shrunk(
        [*steps, (ActionKind.TAKE, 1), *steps, (ActionKind.KILL, 2)],
        lambda some: {each for each, _ in some} >= {*needed},
    )

    assert sorted(action for action, _ in few) == sorted(needed)
