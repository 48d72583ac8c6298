"""The crash campaign of `make chaos`, in small."""

from pathlib import Path

import pytest
from chaos.campaign import Backend, Plan, conduct
from chaos.fleet import ForkServerClient


@pytest.mark.every_server
@pytest.mark.crash
@pytest.mark.parametrize("backend", Backend)
async def test_a_short_campaign_keeps_its_guarantees(fork_server: ForkServerClient, tmp_path: Path, backend: Backend):
    plan = Plan(backend=backend, documents=800, minutes=0.1, workers=3, kill_every_s=1, most_kills=3, lease_s=1.5)
    outcome = await conduct(plan, fork_server, tmp_path, lambda _: None)

    assert outcome.problems == []
    assert outcome.documents >= 800
    assert outcome.kills >= 2
    assert len(outcome.losses) == 3
