import pytest

from tests.primitives.gate.harness import GateHarness
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def harness(valkey: Valkey, clock: ManualClock) -> GateHarness:
    return await GateHarness(valkey, clock).prepare()
