"""What happens when a run has no job left: whatever has to be computed is, once, and then the run is over.

A computation that fails is tried again with growing pauses, and then is a dead letter. Neither keeps the user from
being collected: after the first failure the user may have another run, and with the dead letter this one is over. Its
documents are there in any case; a replay computes what is missing.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.metrics import STATS_RETRY_QUEUE_SIZE
from tidegate.engine import runs, tracing
from tidegate.engine.commit_policy import Planning
from tidegate.engine.committer import Moved
from tidegate.engine.run_counters import run_ended
from tidegate.engine.runs import Run
from tidegate.engine.settings import CollectSettings
from tidegate.runtime.delivery import Handler, Retries
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.outbox import Event

log = get_logger(__name__)

_PAUSES = Backoff(first=timedelta(minutes=1), most=timedelta(hours=1), jitter=0.1)
"""After 1, 2, 4 ... minutes; of eight tries, the last one after two hours."""

Finalizer = Callable[[Run], Awaitable[None]]
"""Computes something of a run that has ended. May be called again for the same run, after a failure or a crash."""


class Completion:
    """Handles the event that a run of one of `sources` ended."""

    def __init__(
        self,
        database: Database,
        sources: Collection[str],
        finalizers: Sequence[Finalizer] = (),
        *,
        planning: Planning | None = None,
        on_moved: Moved = lambda _: None,
        attempts: int = CollectSettings().completion_attempts,
    ) -> None:
        self._database, self._finalizers, self._on_moved = database, tuple(finalizers), on_moved
        self._sources, self._retrying = sorted(sources), dict[str, int]()
        self._planning: Planning = planning or {}
        self._retries = Retries(_PAUSES, max_attempts=attempts)

    @property
    def handlers(self) -> list[Handler]:
        """For the relay: one for each source."""
        return [
            Handler(
                run_ended(source),
                "collect.completion",
                self.complete,
                retries=self._retries,
                on_dead_letter=_alert,
                dead_letter_effect=self._end_without,
                on_waiting=partial(self._count_retrying, source),
            )
            for source in self._sources
        ]

    def _count_retrying(self, source: str, events: int) -> None:
        self._retrying[source] = events
        STATS_RETRY_QUEUE_SIZE.set(sum(self._retrying.values()))

    async def complete(self, event: Event) -> None:
        """Compute, and end the run; one that was taken up again meanwhile goes on, and is told of anew.

        A run that could not be planned is FAILED. What it brought is computed all the same.
        """
        try:
            await self._complete(event)
        except Unavailable:  # the relay waits for the server and calls again within seconds
            raise
        except Exception:
            await self._release(event)
            raise

    async def _release(self, event: Event) -> None:
        """The next try is minutes away; the user's next run need not wait for it."""
        with suppress(Unavailable):  # the next failure releases it, or the end
            await self._database.transaction(runs.release, event.payload["run_id"])

    def _end_without(self, tx: Transaction, event: Event) -> None:
        """The run is over without what could not be computed; in the transaction that writes the dead letter."""
        run_id = event.payload["run_id"]
        runs.complete(tx, run_id, self._planning.get(runs.get(tx, run_id).source, frozenset()))
        tx.after_commit(lambda: self._on_moved([run_id]))

    async def _complete(self, event: Event) -> None:
        run = await self._database.read(runs.get, event.payload["run_id"])
        if run.skipped_items:
            log.warning("collect.items_skipped", run_id=run.id, source=run.source, items=run.skipped_items)
        with tracing.completion(run, event):
            for finalize in self._finalizers:
                with tracing.finalizer(finalize):
                    await finalize(run)
            await self._database.transaction(runs.complete, run.id, self._planning.get(run.source, frozenset()))
        self._on_moved([run.id])


def _alert(event: Event, error: str) -> None:
    log.error("collect.completion_failed", run_id=event.payload["run_id"], error=error)
