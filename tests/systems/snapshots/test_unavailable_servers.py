"""Snapshots while Valkey refuses writes."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.servers.refusing import Held, lines_of_outage, noise, refusing, short_pauses
from tests.servers.valkey import ValkeyServer
from tests.systems.snapshots.deployment import deployed
from tests.waiting import patience, until
from tidegate.core.errors import ServerRefused
from tidegate.core.priority import Priority
from tidegate.storage.valkey.connection import connected
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate_simulators.game import GameSimulator

pytestmark = pytest.mark.usefixtures("logged")


def refresh_request(key: int) -> RefreshRequest:
    return RefreshRequest(
        subject=SnapshotSubject("character", str(key)), priority=Priority.HIGH, reason=Reason.USER_REQUEST
    )


async def test_refreshes_in_progress_are_written_once_and_others_wait(
    tmp_path: Path, sim: GameSimulator, monkeypatch: pytest.MonkeyPatch
):
    waits = short_pauses(monkeypatch)
    with ValkeyServer() as server:
        async with (
            connected(server.url) as valkey,
            deployed(tmp_path, valkey, sim) as deployment,
            deployment.working(),
        ):
            held = Held(deployment.database, monkeypatch)
            await deployment.snapshots.requests.publish(refresh_request(1))
            async with patience():
                await held.arrived.wait()
            with capture_logs() as lines:
                with refusing(server):
                    held.released.set()
                    await until(lambda: deployment.row(1))
                    with pytest.raises(ServerRefused):
                        await deployment.snapshots.requests.publish(refresh_request(2))
                    for key in range(100):
                        await deployment.read(key + 10)
                    await until(lambda: waits.longest >= 10)
                answer = await deployment.until_fresh(2)

    assert deployment.is_true(2, answer)
    assert (sim.calls_of(1), sim.calls_of(2)) == (1, 1)
    assert len(lines_of_outage(lines)) <= 3
    assert [line for line in lines if line["event"].startswith("snapshots.")] == []
    assert noise(lines) == []
