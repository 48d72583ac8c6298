"""Notes of handled events go when they are old, and not before."""

from datetime import timedelta

import pytest

from tidegate.database import Database, outbox
from tidegate.kernel.clock import ManualClock
from tidegate.runtime.pruner import EVERY, KEEP, Pruner


@pytest.mark.every_server
async def test_a_note_is_kept_as_long_as_its_event_could_come_again(migrated_url: str, clock: ManualClock):
    async with await Database.open(migrated_url, clock=clock) as database:
        now_ms = 0.0
        pruner = Pruner(database, now_ms=lambda: now_ms)
        assert await database.transaction(outbox.once, "handler", "event")

        clock.advance(KEEP - timedelta(seconds=1))
        assert await pruner.fire() == EVERY / timedelta(milliseconds=1)
        assert not await database.transaction(outbox.once, "handler", "event")

        clock.advance(timedelta(seconds=2))
        await pruner.fire()  # not due again before a day is over
        assert not await database.transaction(outbox.once, "handler", "event")

        now_ms = EVERY / timedelta(milliseconds=1)
        await pruner.fire()
        assert await database.transaction(outbox.once, "handler", "event")
