"""`tidegate dead-letters` groups dead letters and settles a group."""

import json
from pathlib import Path

from tests.cli.batch import tidegate_each
from tests.cli.test_runs import installation
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event


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
