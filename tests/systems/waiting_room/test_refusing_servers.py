"""A waiting room while Valkey refuses writes for longer than the lease of its leader."""

from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder
from tests.servers.refusing import lease_ended_ms_ago, lines_of_outage, noise, refusing, short_pauses
from tests.servers.valkey import ValkeyServer
from tests.systems.waiting_room.harness import ROOM, add_visitors, inside, line
from tests.systems.waiting_room.test_process import until
from tests.waiting import until as until_true
from tidegate.connections import open_context
from tidegate.core.errors import ValkeyUnavailable
from tidegate.primitives.membership import MembershipKeys, MembershipSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.system import open_waiting_rooms

LEASE = timedelta(seconds=1)

pytestmark = pytest.mark.usefixtures("logged")


async def test_visitors_keep_their_places_and_are_admitted_in_order_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    short_pauses(monkeypatch)
    plan = RoomPlan(capacity=1, session=timedelta(minutes=5), abandon_after=timedelta(minutes=5))
    with ValkeyServer() as server:
        settings = Settings(
            data_dir=await migrated_folder(tmp_path),
            valkey_url=server.url,
            membership=MembershipSettings(lease=LEASE, renew_every=LEASE / 4),
        )
        async with open_context(settings) as parts:
            lease = str(MembershipKeys(parts.unit).membership)
            rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
            async with at_work(build_process(parts, leader_services={"rooms": rooms.workers()})):
                await rooms.create(ROOM, plan)
                room = await rooms.open(ROOM, None)
                await add_visitors(room, "ann", "bob", "cid")
                await until(parts.valkey, room, active=1, waiting=2)
                with capture_logs() as lines:
                    with refusing(server):
                        with pytest.raises(ValkeyUnavailable):
                            await room.join("dan")
                        await until_true(lambda: lease_ended_ms_ago(server, lease) > 2 * LEASE.total_seconds() * 1000)
                    await room.leave((await room.join("ann")).token or "")
                    await until(parts.valkey, room, active=1, waiting=1)
                    assert await inside(room, "ann", "bob", "cid") == ["bob"]
                    assert await line(room, parts.valkey) == ["cid"]

    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []
