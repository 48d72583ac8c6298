"""What happens when a run has no job left: whatever has to be computed is, once, and then the run is complete."""

from collections.abc import Awaitable, Callable, Sequence

from tidegate.collect import runs
from tidegate.collect.runs import RUN_ENDED, Run
from tidegate.database import Database
from tidegate.database.outbox import Event
from tidegate.runtime.delivery import Handler

Finalizer = Callable[[Run], Awaitable[None]]
"""Computes something of a run that has ended. May be called again for the same run, after a failure or a crash."""


class Completion:
    """Handles the event that a run ended. What fails is tried again with growing pauses, then becomes a dead letter."""

    def __init__(self, database: Database, finalizers: Sequence[Finalizer] = ()) -> None:
        self._database, self._finalizers = database, tuple(finalizers)

    @property
    def handler(self) -> Handler:
        """For the relay."""
        return Handler(RUN_ENDED, "collect.completion", self.complete)

    async def complete(self, event: Event) -> None:
        """Compute, and end the run; one that was taken up again meanwhile goes on, and is told of anew."""
        run = await self._database.read(runs.get, event.payload["run_id"])
        for finalize in self._finalizers:
            await finalize(run)
        await self._database.transaction(runs.complete, run.id)
