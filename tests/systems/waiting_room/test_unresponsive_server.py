"""A server that hangs: it takes connections, and says nothing. Nobody waits long for it, and not everybody waits."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers.migrated import migrated_file
from tests.servers.valkey import ValkeyServer
from tests.systems.waiting_room.counter import served, showing
from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, harness_at, inside
from tests.virtual_time import run_virtually
from tests.waiting import patience, simulated_delay
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ValkeyUnavailable
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey import connection as connection_module
from tidegate.storage.valkey.connection import connected
from tidegate.systems.waiting_room import Inside, NotActive, WaitingRoom
from tidegate.systems.waiting_room.waiting_room import ReplyDeadline

REMEMBERED_MS = 3000


@dataclass
class HangingRoom:
    """A room with one inside and two in line, on a server that can be made to hang."""

    harness: RoomHarness
    room: WaitingRoom
    passes: list[str]
    pid: int
    asked: list[str]
    """What the server was asked."""
    elapsed_ms: float = 0.0

    @contextmanager
    def hanging(self) -> Generator[None]:
        """The server stands still until the end of the block."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    async def tries(self, *passes: str) -> int:
        """They are checked all at once: how many of these checks the server was asked for."""
        self.asked.clear()
        answers = await asyncio.gather(*(self.room.check(token) for token in passes))
        assert all(isinstance(each.standing, Inside) for each in answers)
        return len(self.asked)


@pytest.fixture
async def hanging_room(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[HangingRoom]:
    asked: list[str] = []
    execute = Valkey.execute

    async def noted(valkey: Valkey, *command: Any) -> Any:
        asked.append(command[0])
        return await execute(valkey, *command)

    monkeypatch.setattr(Valkey, "execute", noted)
    monkeypatch.setattr(connection_module, "_ANSWER_WITHIN_S", 3600.0)  # the client alone would wait for an hour
    with ValkeyServer() as server:
        async with (
            connected(server.url) as valkey,
            harness_at(await migrated_file(tmp_path / "rooms.db"), valkey, clock) as harness,
        ):
            room = await harness.open(capacity=1)
            await add_visitors(room, "ada")
            await harness.run_worker()
            passes = await add_visitors(room, "ada", "bob", "cem")
            opened = HangingRoom(harness, room, passes, (await valkey.execute("INFO", "server"))["process_id"], asked)
            await room.standings([])  # from now on the server has the script
            room.deadline = ReplyDeadline(ROOM, elapsed_ms=lambda: opened.elapsed_ms)
            yield opened


async def test_during_an_outage_passes_are_checked_in_sql_and_one_caller_probes_the_server(hanging_room: HangingRoom):
    ada, bob, _ = hanging_room.passes
    async with patience():
        with hanging_room.hanging():
            assert await hanging_room.tries(ada) == 1
            assert await hanging_room.tries(ada, ada, ada) == 0, "it is remembered"
            with pytest.raises(NotActive):
                await hanging_room.room.check(bob)
            hanging_room.elapsed_ms += REMEMBERED_MS
            assert await hanging_room.tries(ada, ada, ada) == 1, "one finds out for all"
            assert await hanging_room.tries(ada) == 0
        hanging_room.elapsed_ms += REMEMBERED_MS
        assert await hanging_room.tries(ada) == 1
        assert await hanging_room.tries(ada, ada, ada) == 3, "the server is asked as before"

    await hanging_room.harness.run_worker()
    assert await inside(hanging_room.room, "ada", "bob", "cem") == ["ada"]


async def test_an_expired_session_is_refused_while_the_server_hangs(hanging_room: HangingRoom):
    with hanging_room.hanging():
        hanging_room.harness.clock.advance(timedelta(minutes=11))
        for _ in range(2):
            with pytest.raises(NotActive):
                await hanging_room.room.check(hanging_room.passes[0])


async def test_while_the_server_hangs_admitted_visitors_are_served_and_others_told_to_retry(hanging_room: HangingRoom):
    ada, bob, cem = hanging_room.passes
    place = f"/v1/rooms/{ROOM}"
    async with served(hanging_room.harness.rooms) as client, patience():

        def everything() -> list[Any]:
            return [
                client.ask("POST", f"{place}/check", **showing(ada)),
                client.ask("POST", f"{place}/renewals", **showing(ada)),
                client.ask("GET", f"{place}/place", **showing(bob)),
                client.ask("DELETE", f"{place}/place", **showing(cem)),
                client.post(f"{place}/entries", {"user": "dan"}),
                client.post(f"{place}/admissions", {"users": ["eve"]}),
                client.get(place),
            ]

        with hanging_room.hanging():
            first = await asyncio.gather(*everything())
            hanging_room.asked.clear()
            then = await asyncio.gather(*everything())
            asked = list(hanging_room.asked)
        hanging_room.elapsed_ms += REMEMBERED_MS
        back = await client.ask("GET", f"{place}/place", **showing(bob))

    for replies in (first, then):
        assert [each.status for each in replies] == [200, 200, 503, 503, 503, 503, 503]
        assert all("retry-after" in each.headers for each in replies[2:])
    assert asked == [], "it is remembered"
    assert (back.status, back.json["state"], back.json["position"]) == (200, "waiting", 1)
    assert await hanging_room.harness.states() == [("ada", "active")]


def test_a_caller_waiting_for_its_turn_does_not_time_out_while_others_are_answered():
    async def scenario(now_s: Callable[[], float]) -> None:
        deadline, turn = ReplyDeadline(ROOM), asyncio.Event()

        async def brief() -> None:
            await simulated_delay(0.05)

        async def last() -> str:
            await turn.wait()
            return "its turn"

        waiting = asyncio.create_task(deadline.call(last, 0.3))
        for _ in range(12):
            await deadline.call(brief, 0.3)
        assert now_s() >= 0.6
        turn.set()

        assert await waiting == "its turn"

    run_virtually(scenario)


async def test_a_refused_connection_is_not_remembered():
    deadline = ReplyDeadline(ROOM)

    async def refused() -> None:
        raise ValkeyUnavailable("refused")

    async def answered() -> str:
        return "back"

    for _ in range(3):
        with pytest.raises(ValkeyUnavailable, match="refused"):
            await deadline.call(refused)

    assert await deadline.call(answered) == "back"
