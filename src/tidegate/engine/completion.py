"""Completes runs without unfinished jobs: runs the finalizers (statistics), then sets the final state.

A finalizer that fails is retried with growing pauses, and then its event becomes a dead letter. Neither blocks further
runs: after the first failure the user may have another run, and with the dead letter this one is over without its
statistics. Its documents are stored in any case; a replay of the event computes what is missing.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from tidegate.core.backoff import Backoff
from tidegate.core.errors import Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import runs, tracing
from tidegate.engine.committer import Moved
from tidegate.engine.credentials import how_to_get_one, records
from tidegate.engine.credentials.pools import has_credentials
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.metrics import STATS_RETRY_QUEUE_SIZE
from tidegate.engine.run_counters import RUN_ENDED, Planning, ended_key, run_ended
from tidegate.engine.runs import Run
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source_addresses import matching_addresses
from tidegate.runtime.delivery import Handler, Retries
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event, StoredEvent
from tidegate.system import Context

log = get_logger(__name__)

_PAUSES = Backoff(first=timedelta(minutes=1), most=timedelta(hours=1), jitter=0.1)
"""After 1, 2, 4 ... minutes; the last of eight tries is about two hours after the first."""
_MOST_LETTERS = 1_000

Finalizer = Callable[[Run], Awaitable[None]]
"""Computes something of an ended run. It may be called again for the same run, after a failure or a crash."""


class Completion:
    """Handles the events that runs of `sources` ended."""

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
        """The handlers for the relay, one for each source."""
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
        # The gauge has no label for the source, so it is set to the sum over all sources.
        self._retrying[source] = events
        STATS_RETRY_QUEUE_SIZE.set(sum(self._retrying.values()))

    async def complete(self, event: Event) -> None:
        """Run the finalizers and end the run. A run that was resumed meanwhile continues, and ends with another event.

        A run with failed planning is FAILED. The finalizers run for it as well.
        """
        try:
            await self._complete(event)
        except Unavailable:  # the relay waits for the server and calls again within seconds
            raise
        except Exception:
            await self._release(event)
            raise

    async def _release(self, event: Event) -> None:
        """Allow the user another run: the next try is minutes away."""
        with suppress(Unavailable):  # the next failure releases it, or the end of the run
            await self._database.transaction(runs.release, event.payload["run_id"])

    def _end_without(self, tx: Transaction, event: Event) -> None:
        """End the run without its statistics, in the transaction that writes the dead letter."""
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


def failed_completions(tx: Transaction, run_ids: Sequence[int]) -> dict[int, str]:
    """Return the errors of completions that are dead letters, by run id; at most a thousand."""
    keys = {ended_key(run_id): run_id for run_id in sorted(set(run_ids))}
    return {keys[letter.key]: letter.last_error or "" for letter in _letters(tx, list(keys))} if keys else {}


def replay(tx: Transaction, run_id: int) -> bool:
    """Deliver the event of a run again. Returns False where it is no dead letter."""
    letters = _letters(tx, [ended_key(run_id)])
    return bool(letters) and outbox.replay(tx, ids=[letter.id for letter in letters]) > 0


def _letters(tx: Transaction, keys: Sequence[str]) -> list[StoredEvent]:
    found = outbox.dead_letters(tx, keys=keys, limit=_MOST_LETTERS)
    return [letter for letter in found if letter.kind.startswith(f"{RUN_ENDED}.")]


class UnservedRuns:
    """Fails the runs of one source in pools without a valid credential, stored or in the memory of a process.

    The runs can be retried after a credential was added. `cell` is the context of the source.
    """

    def __init__(self, cell: Context, source: str, *, on_moved: Moved) -> None:
        self._database, self._source, self._on_moved = cell.database, source, on_moved
        self._recovery = Recovery(cell.database, cell.gate)

    async def check_all(self) -> None:
        """Check all pools of the source: a process may have removed a credential and died before it checked."""
        for pool in await self._database.read(runs.pools_in_use):
            await self.check(pool)

    async def check(self, pool: str) -> None:
        """Fail the runs of a pool if it has no valid credential. Pools of other sources are ignored."""
        if not has_credentials(self._source, pool) or await self._database.read(self._is_served, pool):
            return
        failed = await self._database.transaction(self._fail, pool)
        if failed:
            self._on_moved(failed)
            await self._recovery.forget_failed(failed)
            log.error("credentials.runs_failed", pool=pool, runs=len(failed), jobs=sum(map(len, failed.values())))

    def _is_served(self, tx: Transaction, pool: str) -> bool:
        """Whether a credential is valid for the address of the runs, which may differ from that of this process."""
        return bool(matching_addresses(tx, self._source, records.audiences_of(tx, pool)))

    def _fail(self, tx: Transaction, pool: str) -> dict[int, list[int]]:
        # Checked again in the transaction: a credential may have been added meanwhile.
        if self._is_served(tx, pool):
            return {}
        why = f"no valid credential for pool {pool!r}: {how_to_get_one(self._source)}, and retry the run"
        return runs.fail_pool(tx, pool, why)
