"""`tidegate dead-letters` groups dead letters and settles a group."""

import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.cli.batch import tidegate_each
from tests.cli.test_commands import environment
from tests.cli.test_runs import installation
from tests.processes import start_warm
from tests.waiting import look_again, patience
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event, EventState
from tidegate.storage.sql.schema import outbox_events


def _add_dead_events(tx: Transaction) -> None:
    outbox.add(tx, *(Event("test.paid", f"order:{number}", {}) for number in range(3)))
    for row in outbox.pending_page(tx, limit=10):
        outbox.mark_dead(tx, row.id, attempts=12, error=f"order {row.id} is locked by '{row.key}'")


async def test_groups_are_listed_and_replayed_for_people_and_for_programs(tmp_path: Path):
    async with installation(tmp_path) as database:
        await database.transaction(_add_dead_events)

    text, listed, unknown = await tidegate_each(
        tmp_path,
        "dead-letters groups",
        "dead-letters groups --kind events --json",
        "dead-letters groups --kind nothing",
    )
    [group] = json.loads(listed.out)["groups"]
    ident = group["id"]
    refused, replayed, again, none = await tidegate_each(
        tmp_path,
        f"dead-letters discard {ident} --yes",
        f"dead-letters replay {ident} --json",
        f"dead-letters replay {ident}",
        "dead-letters groups",
    )

    assert f"{ident}      3" in text.out
    assert "order … is locked by …" in text.out
    assert (group["count"], group["name"], group["can_discard"]) == (3, "test.paid", False)
    assert (unknown.code, unknown.err) == (1, "there is no kind of dead letters 'nothing'")
    assert (refused.code, refused.err) == (1, "dead letters of events cannot be discarded, only replayed")
    assert json.loads(replayed.out) == {"group": ident, "replayed": 3, "stayed": 0}
    assert (again.code, again.out) == (0, "0 dead letters replayed\n")
    assert none.out == "No dead letters.\n"


@pytest.mark.full
async def test_a_replay_that_was_killed_halfway_is_completed_by_repeating_it(tmp_path: Path):
    total = 3_000
    async with installation(tmp_path) as database:

        def add(tx: Transaction) -> None:
            outbox.add(tx, *(Event("test.paid", f"order:{number}", {}) for number in range(total)))
            tx.execute(update(outbox_events).values(state=EventState.DEAD, attempts=12, last_error="it is locked"))

        await database.transaction(add)
        [listed] = await tidegate_each(tmp_path, "dead-letters groups --json")
        [group] = json.loads(listed.out)["groups"]
        program = str(Path(sys.executable).with_name("tidegate"))
        process = await start_warm(
            *(program, "dead-letters", "replay", group["id"]), stdout=PIPE, cwd=tmp_path, env=environment(tmp_path)
        )
        async with patience():
            while (await database.read(outbox.depth)).dead == total:
                await look_again()
        process.kill()
        await process.communicate()
        halfway = await database.read(outbox.depth)
        [again] = await tidegate_each(tmp_path, f"dead-letters replay {group['id']} --json")
        after = await database.read(outbox.depth)

    assert halfway.pending + halfway.dead == total, "an event is dead or pending, whatever was killed"
    assert json.loads(again.out)["replayed"] == halfway.dead
    assert (after.pending, after.dead) == (total, 0)
