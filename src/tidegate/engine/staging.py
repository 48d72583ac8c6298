"""Stages documents before the transaction that ends their jobs: writes them, or prepares the statements.

Other batches are committed while the document store writes. If it is unavailable, the answers are parked with their
jobs, and the store is not asked again for 5 s, so that no batch waits for its timeout.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tidegate.core.clock import Clock
from tidegate.core.errors import Unavailable
from tidegate.engine.commit_batch import WriteGroup, take
from tidegate.engine.job_results import to_parked
from tidegate.engine.job_store import JobResult
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end
from tidegate.storage.documents import Documents, Staged, Written
from tidegate.storage.sql import Transaction

_REST = timedelta(seconds=5)


class _Unstaged:
    """Documents that the store rejected."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def apply(self, tx: Transaction) -> Written:
        """See `Staged.apply`."""
        del tx
        raise self._error


class _Joined:
    """Documents of several sources."""

    def __init__(self, parts: Sequence[Staged]) -> None:
        self._parts = parts

    def apply(self, tx: Transaction) -> Written:
        """See `Staged.apply`."""
        written = [part.apply(tx) for part in self._parts]
        return Written(changed=sum(each.changed for each in written), gone=sum(each.gone for each in written))


class Staging:
    """Stages results in groups; `on_ready` gets each group in the order in which the store finished them.

    One group is ready at a time: results that arrive meanwhile are staged together.
    """

    def __init__(self, documents: Documents, clock: Clock, on_ready: Callable[[WriteGroup], None]) -> None:
        self._documents, self._clock, self._on_ready = documents, clock, on_ready
        self._waiting: deque[JobResult] = deque()
        self._running: asyncio.Task[None] | None = None
        self._taken = asyncio.Event()
        self._away: tuple[datetime, str] | None = None
        self._outage = Outage("collect.documents")

    def add(self, finished: JobResult) -> None:
        """Stage the documents of a result, together with those of other waiting results."""
        self._waiting.append(finished)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="stage documents")

    @property
    def waiting(self) -> int:
        """The number of results that are not staged yet."""
        return len(self._waiting)

    def go_on(self) -> None:
        """Stage the next group: the previous one is in a batch now."""
        self._taken.set()

    async def close(self) -> None:
        """Cancel the group that is being staged."""
        if self._running is not None:
            await end(self._running)

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = take(self._waiting)
                # Before the group is passed on, after which the committer may set it.
                self._taken.clear()
                try:
                    self._on_ready(await self.stage(batch))
                except Exception as error:  # the batch fails with it, and is split into its results
                    self._on_ready(WriteGroup(batch, _Unstaged(error)))
                await self._taken.wait()
        finally:
            self._running = None

    async def stage(self, batch: Sequence[JobResult]) -> WriteGroup:
        """Return one group that is ready for a batch: with its documents, or parked."""
        now = self._clock.now()
        if self._away is not None and now < self._away[0]:
            return self._park(batch, self._away[1], now)
        try:
            staged = _Joined([await self._stage_source(source, batch) for source in _sources_of(batch)])
        except Unavailable as error:
            self._outage.note(error)
            # The pause begins at the end of the failed attempt, which may have taken long.
            now = self._clock.now()
            self._away = (now + _REST, str(error))
            return self._park(batch, str(error), now)
        self._away = None
        self._outage.over()
        return WriteGroup(batch, staged)

    async def _stage_source(self, source: str, batch: Sequence[JobResult]) -> Staged:
        """Stage the documents of one source, under its own name."""
        ours = [one for one in batch if one.source == source]
        return await self._documents.of(source).stage(
            [document for one in ours for document in one.documents],
            completed=[listing for one in ours for listing in one.completed],
        )

    def _park(self, batch: Sequence[JobResult], why: str, now: datetime) -> WriteGroup:
        return WriteGroup([to_parked(one, why, now) if one.needs_store else one for one in batch])


def _sources_of(batch: Sequence[JobResult]) -> list[str]:
    return sorted({one.source for one in batch if one.needs_store})
