"""Records of admissions are deleted when they are too old."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tests.systems.waiting_room.harness import RoomHarness
from tidegate.connections import build_context
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room.room_store import room_tokens
from tidegate.systems.waiting_room.system import OpenWaitingRooms


def _admissions(tx: Transaction) -> list[int]:
    return sorted(tx.execute(select(room_tokens.c.admission)).scalars())


@pytest.mark.every_server
async def test_admissions_are_deleted_after_their_end_but_the_last_of_a_room(
    harness_on_each_server: RoomHarness, tmp_path: Path
):
    now, kept = harness_on_each_server.clock.now(), timedelta(days=10)
    settings = Settings.model_validate({"data_dir": tmp_path, "waiting_room": {"tokens_kept": kept}})
    context = build_context(settings, harness_on_each_server.rooms.valkey, harness_on_each_server.database)
    times = {"admitted_at": now, "expires_at": now, "ends_at": now, "is_guest": False, "room": "sale"}
    over = {**times, "state": "expired", "ended_at": now, "active_user": None}
    inside = {**times, "state": "active", "ended_at": None, "active_user": "u2"}
    rows = [{**row, "admission": n, "user_id": f"u{n}"} for n, row in enumerate([over, inside, over, over], 1)]
    await harness_on_each_server.database.transaction(lambda tx: tx.execute(insert(room_tokens), rows))
    [rule] = OpenWaitingRooms(context, harness_on_each_server.rooms).retention_rules()

    harness_on_each_server.clock.advance(kept - timedelta(seconds=1))
    assert await rule.prune(500) == 0
    harness_on_each_server.clock.advance(timedelta(seconds=2))
    assert await rule.prune(500) == 2

    assert await harness_on_each_server.database.read(_admissions) == [2, 4]
