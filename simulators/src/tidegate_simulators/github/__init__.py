"""A GitHub of one's own: its limits, pages, statuses and moods, a world out of a seed, and a ledger of all calls.

async with GithubSimulator(SimulatorConfig(limits=LimitSettings(quota=200, window_s=10))) as sim:
    ...  # collect from sim.url with sim.token_of(login)
    assert sim.report().broken == 0
    assert copy == sim.truth(login)
"""

from tidegate_simulators.github.config import (
    Behaviour,
    FaultKind,
    FaultRule,
    LimitSettings,
    SimulatorConfig,
    Sizes,
    WorldShape,
    parse_faults,
)
from tidegate_simulators.github.ledger import Broken, Needed, Report, Violation, WindowUse
from tidegate_simulators.github.simulator import GithubSimulator
from tidegate_simulators.github.truth import ESSENTIAL, KINDS, RepositoryTruth, Truth, perfect_calls, truth
from tidegate_simulators.github.world import World

__all__ = [
    "ESSENTIAL",
    "KINDS",
    "Behaviour",
    "Broken",
    "FaultKind",
    "FaultRule",
    "GithubSimulator",
    "LimitSettings",
    "Needed",
    "Report",
    "RepositoryTruth",
    "SimulatorConfig",
    "Sizes",
    "Truth",
    "Violation",
    "WindowUse",
    "World",
    "WorldShape",
    "parse_faults",
    "perfect_calls",
    "truth",
]
