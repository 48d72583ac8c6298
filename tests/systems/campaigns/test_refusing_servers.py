"""Campaigns while Valkey refuses writes."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.servers.migrated import migrated_file
from tests.servers.refusing import Held, lines_of_outage, noise, refusing, short_pauses
from tests.servers.valkey import ValkeyServer
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import worker_harness_at
from tests.waiting import patience, until
from tidegate.storage.valkey.connection import connected

pytestmark = pytest.mark.usefixtures("logged")


async def test_the_pauses_of_a_listening_process_grow_and_it_listens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waits = short_pauses(monkeypatch)
    url = await migrated_file(tmp_path / "c.db")
    with ValkeyServer() as server:
        async with connected(server.url) as valkey, worker_harness_at(url, valkey) as workers:
            await workers.open()
            await workers.instance()
            with capture_logs() as lines:
                with refusing(server):
                    await until(lambda: waits.longest >= 10)
                await workers.enter("ann")
                await workers.until_decided(1)

    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_an_entry_in_progress_is_decided_once_and_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waits = short_pauses(monkeypatch)
    url = await migrated_file(tmp_path / "c.db")
    with ValkeyServer() as server:
        async with connected(server.url) as valkey, worker_harness_at(url, valkey) as workers:
            await workers.open()
            await workers.instance()
            held = Held(workers.database, monkeypatch)
            await workers.enter("ann")
            async with patience():
                await held.arrived.wait()
            with capture_logs() as lines:
                with refusing(server):
                    held.released.set()
                    await until(workers.rows)
                    await until(lambda: waits.longest >= 10)
                await workers.until_decided(1)
                rows = await workers.rows()

    assert set(rows) == {"ann"}
    assert set(workers.told) == {(CAMPAIGN, "ann")}, "watchers are notified at least once"
    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []
