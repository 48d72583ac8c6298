"""A campaign that is deleted leaves nothing behind but points, wherever the deletion is cut off."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select
from typer.testing import CliRunner

from tests.servers.migrated import migrated_file
from tidegate.app.cli import app
from tidegate.core.errors import NotFound
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store
from tidegate.systems.campaigns.campaign_store import campaign_entries, campaigns
from tidegate.systems.campaigns.entry_decisions import apply_entries
from tidegate.systems.campaigns.kinds import Kinds, Points
from tidegate.systems.campaigns.model import (
    POINTS,
    CampaignEntry,
    CampaignExists,
    CampaignInUse,
    CampaignPlan,
    EntryAnswer,
)
from tidegate.systems.campaigns.scripts import campaign_keys
from tidegate.systems.campaigns.service import Campaigns

PLAN = CampaignPlan(id="autumn", kind=POINTS, points=5, total_count=10)


def rows(tx: Transaction) -> list[int]:
    return [tx.execute(select(func.count()).select_from(table)).scalar_one() for table in (campaigns, campaign_entries)]


@pytest.mark.every_server
async def test_deleting_a_campaign_removes_all_rows_and_keys_and_keeps_points(database: Database, embedded: Valkey):
    harness = Campaigns(embedded, database)
    await harness.create(PLAN)
    await harness.start("autumn")
    with pytest.raises(CampaignInUse, match="stop it"):
        await harness.delete("autumn")
    assert (await harness.enter("autumn", "ada")).answer is EntryAnswer.ACCEPTED
    await harness.stop("autumn")
    with pytest.raises(CampaignInUse, match="1 entries"):
        await harness.delete("autumn")

    entry = CampaignEntry(user="ada", number=1, epoch=1, at_ms=0)
    await database.transaction(apply_entries, Kinds([Points()]), "autumn", [entry])
    await embedded.execute("UNLINK", campaign_keys(embedded, "autumn")["stream"])  # as a consumer pool does at the end
    await embedded.execute("XADD", campaign_keys(embedded, "autumn")["dead"], "*", "payload", "x")
    await harness.delete("autumn")

    assert await database.read(rows) == [0, 0]
    assert await embedded.execute("KEYS", "*autumn*") == []
    assert await harness.points_of("ada") == 5
    with pytest.raises(NotFound):
        await harness.delete("autumn")
    await harness.create(PLAN)
    await harness.start("autumn")
    assert (await harness.enter("autumn", "ada")).answer is EntryAnswer.ACCEPTED
    await harness.close()


async def test_a_campaign_whose_stop_did_not_reach_valkey_accepts_nothing_during_its_deletion(
    tmp_path: Path, embedded: Valkey, monkeypatch: pytest.MonkeyPatch
):
    async with await Database.open(await migrated_file(tmp_path / "c.db")) as database:
        harness = Campaigns(embedded, database)
        await harness.create(PLAN)
        await harness.start("autumn")
        await database.transaction(campaign_store.stop, "autumn")
        answers: list[EntryAnswer] = []
        begin = database.transaction

        async def transaction(step: Any, *arguments: Any) -> Any:
            if step is campaign_store.begin_removal:
                answers.append((await harness.enter("autumn", "eve")).answer)
            return await begin(step, *arguments)

        monkeypatch.setattr(database, "transaction", transaction)
        await harness.delete("autumn")
        await harness.close()

    assert len(answers) == 1
    assert answers[0] is not EntryAnswer.ACCEPTED, "an entry that was accepted would be lost"


async def test_repeating_the_call_completes_an_interrupted_deletion(tmp_path: Path, embedded: Valkey):
    async with await Database.open(await migrated_file(tmp_path / "shop.db")) as database:
        harness = Campaigns(embedded, database)
        await harness.create(PLAN)
        await database.transaction(campaign_store.begin_removal, "autumn")

        for gone in (harness.get("autumn"), harness.start("autumn"), harness.enter("autumn", "ada")):
            with pytest.raises(NotFound):
                await gone
        assert await harness.page() == []
        with pytest.raises(CampaignExists, match="being deleted"):
            await harness.create(PLAN)
        await harness.delete("autumn")
        assert await database.read(rows) == [0, 0]
        await harness.close()


def test_the_command_line_deletes_a_campaign(tmp_path: Path, embedded_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIDEGATE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_VALKEY_URL", embedded_url)
    run = CliRunner().invoke
    assert run(app, ["campaign", "create", "winter", "--total", "3"]).exit_code == 0
    deleted = run(app, ["campaign", "delete", "winter", "--json"])
    assert msgspec.json.decode(deleted.output) == {"deleted": "winter"}
    assert run(app, ["campaign", "status", "winter"]).exit_code != 0
