"""A game API of one's own: characters of 300 KB that change by themselves, limits, faults, and an account of all.

async with GameSimulator(GameConfig(limits=LimitSettings(per_second=50))) as simulator:
    ...  # GET {simulator.url}/v1/characters/{id} with the header X-Api-Key: {simulator.api_key}
    assert simulator.report().broken == 0
    assert copy == simulator.truth(id).kept
"""

from tidegate_simulators.cost import Cost
from tidegate_simulators.game.clock import WorldClock
from tidegate_simulators.game.config import (
    Behaviour,
    FaultKind,
    FaultRule,
    GameConfig,
    LimitSettings,
    Tempo,
    WorldShape,
    parse_faults,
    parse_tempi,
)
from tidegate_simulators.game.documents import KEPT_FIELDS, extract_kept
from tidegate_simulators.game.key_limits import KeyReport
from tidegate_simulators.game.ledger import Report
from tidegate_simulators.game.simulator import GameSimulator, Truth
from tidegate_simulators.game.world import State, World

__all__ = [
    "KEPT_FIELDS",
    "Behaviour",
    "Cost",
    "FaultKind",
    "FaultRule",
    "GameConfig",
    "GameSimulator",
    "KeyReport",
    "LimitSettings",
    "Report",
    "State",
    "Tempo",
    "Truth",
    "World",
    "WorldClock",
    "WorldShape",
    "extract_kept",
    "parse_faults",
    "parse_tempi",
]
