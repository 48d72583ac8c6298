"""The runtime is the same on every kind of server, so its tests use the one that is always there."""

import pytest

from tidegate.storage.valkey import Valkey


@pytest.fixture
def valkey(embedded: Valkey) -> Valkey:
    return embedded
