"""`tidegate up`, as somebody starts it: it takes entries and works on them, and another takes over when it dies."""

from pathlib import Path

import aiohttp
import pytest

from tests.http.processes import started
from tests.http.serving import Client
from tests.servers.migrated import migrated_folder
from tests.waiting import patience


@pytest.mark.crash
async def test_a_process_accepts_an_entry_and_decides_it(tmp_path: Path):
    (tmp_path / "data").mkdir()
    await migrated_folder(tmp_path / "data")
    async with started(tmp_path, "up", "--port", "0") as server, aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        await client.post("/v1/campaigns", {"id": "autumn", "kind": "FIRST_COME", "total_count": 1})
        await client.post("/v1/campaigns/autumn/start")

        entered = await client.post("/v1/campaigns/autumn/entries", {"user": "ann"})

        assert entered.json == {"answer": "ACCEPTED", "number": 1}
        async with patience():
            events = [event async for event in client.events("/v1/campaigns/autumn/entries/ann/events")]
        assert events[-1].data["state"] == "issued"
        # What was decided is told before its message is acknowledged.
        status = await client.until("/v1/campaigns/autumn", lambda told: told["depth"] == 0)
        assert (len(status["processes"]), status["consumers"]) == (1, 1)
        figures = (await client.get("/metrics")).body.decode()
        assert "campaign_consumer_pools 1.0" in figures
        assert 'campaign_processed_total{outcome="issued"} 1.0' in figures
        assert (await server.stop())["is_clean"]
