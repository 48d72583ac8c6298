import pytest

from tests.primitives.gate.desk import Desk
from tidegate.core.clock import ManualClock
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def desk(valkey: Valkey, clock: ManualClock) -> Desk:
    return await Desk(valkey, clock).prepare()
