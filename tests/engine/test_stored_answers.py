"""An answer that is stored before it is read: a reader that fails is given it again, and no call is repeated."""

from typing import Any

import pytest
from sqlalchemy import func, select

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfSource, ShelfUpstream
from tidegate.connections import build_context
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Reading, Task
from tidegate.engine.tables import parked_answers
from tidegate.engine.upstream import Answer
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey

QUICK = CollectSettings(first_pause=0.01, longest_pause=0.01)  # pyright: ignore[reportArgumentType]


class Stumbling(ShelfSource):
    """Fails at the first readings of a page."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def read(self, task: Task, answer: Answer) -> Reading:
        if task.spec.resource == "shelf:ada-poems" and self.failures:
            self.failures -= 1
            raise KeyError("n")
        return super().read(task, answer)


@pytest.fixture
def keeping(embedded: Valkey, database: Database, upstream: ShelfUpstream) -> Library:
    """A library whose answers are stored before they are read."""
    parts, source = build_context(Settings(), embedded, database), Stumbling(3)
    return Library(parts, upstream, source=source, keeps_answers=True, settings=QUICK)


def parked_rows(tx: Any) -> int:
    return tx.execute(select(func.count()).select_from(parked_answers)).scalar_one()


async def test_a_reader_that_failed_gets_the_same_answer_again(keeping: Library):
    async with keeping.working():
        run = await keeping.ended()

    assert (run.failed_jobs, len(await keeping.items())) == (0, 10)
    assert set(keeping.upstream.calls.values()) == {1}, "no page was asked for twice"
    assert run.calls == keeping.upstream.calls.total()
    assert await keeping.parts.database.read(parked_rows) == 0
