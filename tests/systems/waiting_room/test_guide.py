"""What the guide shows is what happens: its commands are run, its requests sent, and the answers compared."""

import json
import runpy
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.docs.pages import ROOT, blocks_of
from tests.http.serving import read_events
from tests.http.test_guide import Shown, assert_fits, request_of, shown_in
from tests.systems.waiting_room.counter import HEADER, Counter, bring, served
from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors
from tests.systems.waiting_room.test_commands import Tidegate, tidegate
from tidegate.storage.sql import Transaction

GUIDE = ROOT / "docs" / "guides" / "waiting-rooms.md"
USERS = ["ada", "bob", "cem", "dan", "eve"]
__all__ = ["tidegate"]


@pytest.mark.full
def test_the_commands_of_the_guide_print_its_output(tidegate: Tidegate):
    commands = shown_in(GUIDE, "tidegate")
    assert len(commands) >= 7, "the search finds too little"
    for each in commands:
        said = tidegate(*each.words[2:])
        assert said.exit_code == 0, (each.words, said.output)
        # Without the moment, which is told by the clocks of where this runs.
        assert said.stdout.partition(" opens at ")[0].splitlines()[0] == each.output[0].partition(" opens at ")[0]


@pytest.mark.full
def test_the_program_of_the_guide_can_be_repeated_with_other_rooms_present(
    tidegate: Tidegate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    program, *_ = [block for block in blocks_of(GUIDE) if block.language == "python"]
    told, *_ = [block for block in blocks_of(GUIDE) if block.language == "text"]
    script = tmp_path / "program.py"
    script.write_text(program.text)
    assert tidegate("create", "sale", "--capacity", "5").exit_code == 0
    for _ in range(2):
        runpy.run_path(str(script))
        assert capsys.readouterr().out == told.text


@pytest.mark.every_server
async def test_the_queries_of_the_guide_audit_capacity_and_order(harness_on_each_server: RoomHarness):
    inside_at_once, overtaken = [block.text for block in blocks_of(GUIDE) if block.language == "sql"]
    room = await harness_on_each_server.open(capacity=2, session=timedelta(minutes=1), abandon_after=timedelta(hours=1))
    passes = await add_visitors(room, *USERS)
    for _ in USERS:
        await harness_on_each_server.run_worker()
        harness_on_each_server.clock.advance(timedelta(seconds=30))
    await room.leave(passes[-1])

    assert await harness_on_each_server.database.read(_ask, inside_at_once) == [(2,)]
    assert await harness_on_each_server.database.read(_ask, overtaken) == []
    assert {state for _, state in await harness_on_each_server.states()} == {"expired", "left"}

    await harness_on_each_server.database.transaction(
        _ask_and_write, "UPDATE room_tokens SET ended_at = NULL WHERE place = 1"
    )
    await harness_on_each_server.database.transaction(
        _ask_and_write, "UPDATE room_tokens SET place = 9 WHERE place = 2"
    )
    assert await harness_on_each_server.database.read(_ask, inside_at_once) == [(3,)]
    assert sorted(await harness_on_each_server.database.read(_ask, overtaken)) == [
        (user, n) for n, user in enumerate(USERS, 1) if n > 2
    ]


async def test_the_requests_of_the_guide_have_its_responses(harness: RoomHarness):
    await harness.open(capacity=1)
    requests = shown_in(GUIDE, "curl")
    assert len(requests) >= 10, "the search finds too little"
    token = ""
    async with served(harness.rooms) as client:
        for each in requests:
            if each.words[-1].endswith(("/events", "/draw")):
                await harness.rooms.change_plan(ROOM, {"capacity": 0})
                token = (await bring(client, f"{each.words[-1][-4:]}-watcher"))["pass"]
            words = [word.replace("$PASS", token) for word in each.words]
            if each.words[-1].endswith("/events"):
                await _follow(client, harness, each, token)
                continue
            method, path, body, headers = request_of(words)
            reply = await client.ask(method, path, data=body, headers=headers)
            assert reply.status == (201 if path == "/v1/rooms" else 200), (path, reply)
            assert_fits(json.loads(each.output[0]), reply.json)
            token = reply.json.get("pass") or token
            await harness.run_worker()


async def _follow(client: Counter, harness: RoomHarness, each: Shown, token: str) -> None:
    told = [msgspec.json.decode(line.removeprefix("data: ")) for line in each.output if line.startswith("data: ")]
    async with client.session.get(client.url + f"/v1/rooms/{ROOM}/place/events", headers={HEADER: token}) as answer:
        events = read_events(answer)
        first = await anext(each async for each in events if each.kind)
        assert_fits(told[0], first.data)
        await harness.rooms.change_plan(ROOM, {"capacity": 1})
        await harness.run_worker()
        rest = [each async for each in events if each.kind]
    assert_fits(told[-1], rest[-1].data)
    assert rest[-1].id == "ended"


def _ask(tx: Transaction, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in tx.execute_sql(sql)]


def _ask_and_write(tx: Transaction, sql: str) -> None:
    tx.execute_sql(sql)
