"""Campaign entries over HTTP: accepted ones, and refused ones of a campaign that is sold out."""

import tempfile
from pathlib import Path

from bench.figures import Figure, Section
from bench.processes import TIDEGATE, running
from bench.request_load import RequestLoad, Speed, measure_speed, post, write_requests
from bench.server import tcp_server
from tidegate.connections import open_context
from tidegate.settings import Settings
from tidegate.systems.campaigns.model import FIRST_COME, CampaignPlan
from tidegate.systems.campaigns.service import Campaigns

ENTRIES, LINES, FOR_S, TURNS = 200_000, 64, 3.0, 3
TARGET = 12_000
OPEN, SOLD_OUT = "open", "sold-out"
_STATUS = {OPEN: 202, SOLD_OUT: 409}


async def measure() -> Section:
    """Measure both campaigns in turn; the best turn of each counts."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name, tcp_server() as url:
        folder = Path(name)
        await _create(Settings(data_dir=folder, valkey_url=url))
        environment = {
            "TIDEGATE_DATA_DIR": name,
            "TIDEGATE_VALKEY_URL": url,
            "TIDEGATE_LOG__LEVEL": "warning",
            "TIDEGATE_CAMPAIGNS__MAX_LEN": "10000000",  # entries stay undecided
        }
        best: dict[str, Speed] = {}
        async with running(TIDEGATE, "serve", "--port", "0", "--json", settings=environment) as server:
            port = int(server.said["url"].rpartition(":")[2])
            for turn in range(TURNS):
                for campaign, status in _STATUS.items():
                    file = _requests(folder, campaign, turn)
                    load = RequestLoad(port=port, file=file, lines=LINES, for_s=FOR_S, status=status)
                    speed = await measure_speed(load, server.pid)
                    if campaign not in best or best[campaign].per_second < speed.per_second:
                        best[campaign] = speed
    rate = best[OPEN].per_second
    return Section(
        "Campaign requests",
        [
            Figure("entries that are accepted", best[OPEN].text(), f"≥ {TARGET:,}/s", rate >= TARGET),
            Figure("entries of a campaign that is sold out", best[SOLD_OUT].text()),
        ],
        f"One process that answers and decides nothing, {LINES} connections, the best of {TURNS} turns; client and "
        "Valkey server on the same cores.",
    )


async def _create(settings: Settings) -> None:
    async with open_context(settings) as parts:
        campaigns = Campaigns(parts.valkey, parts.database)
        for campaign, total in ((OPEN, 10_000_000), (SOLD_OUT, 1)):
            await campaigns.create(CampaignPlan(id=campaign, kind=FIRST_COME, total_count=total))
            await campaigns.start(campaign)
        await campaigns.enter(SOLD_OUT, "first")
        await campaigns.close()


def _requests(folder: Path, campaign: str, turn: int) -> str:
    path = f"/v1/campaigns/{campaign}/entries"
    listed = [post(path, b'{"user":"turn-%d-%d"}' % (turn, n)) for n in range(ENTRIES)]
    return write_requests(folder / f"{campaign}-{turn}.msgpack", listed)
