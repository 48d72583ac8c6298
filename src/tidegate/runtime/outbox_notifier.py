"""Notifies the leader that this process committed work for it.

The relay and similar services run in one process; the others send a wake-up after a commit, repeated until it succeeds.
If a process dies between its commit and the wake-up, its death is noticed, and the recoverer notifies the relay.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tidegate.core.errors import Unavailable
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.outage import Outage
from tidegate.runtime.service import Service
from tidegate.runtime.waiting import only_our_cancellation, unless
from tidegate.storage.sql import Database, outbox

_LISTEN_S = 300.0


class Notifiable(Service, Protocol):
    """A service that reads its work from SQL when it is notified."""

    def notify(self) -> None:
        """Look for work as soon as possible."""
        ...


class OutboxNotifier:
    """A service of every process: sends a wake-up after commits that published `topic`.

    `leads_here` says whether the service runs in this process, where it was notified by the commit itself.
    """

    def __init__(
        self,
        database: Database,
        wakeup: Wakeup,
        *,
        leads_here: Callable[[], bool],
        topic: str = outbox.COMMITTED,
    ) -> None:
        self._database, self._wakeup, self._leads_here, self._topic = database, wakeup, leads_here, topic
        self._outage = Outage(f"notifier.{topic}")
        self._committed = asyncio.Event()
        self._committed.set()  # for commits from before the subscription

    async def run(self, stopping: asyncio.Event) -> None:
        """Send a wake-up after commits until `stopping` is set. Commits before that cause a wake-up, too."""
        unsubscribe = self._database.subscribe(self._topic, self._committed.set)
        try:
            while self._committed.is_set() or not stopping.is_set():
                await unless(stopping, self._committed.wait())
                if self._committed.is_set():
                    # Cleared before the wake-up is sent: a commit after this line causes another one.
                    self._committed.clear()
                    await self._notify(stopping)
        finally:
            unsubscribe()

    async def _notify(self, stopping: asyncio.Event) -> None:
        async def notify() -> None:
            # Asked at each attempt, because the leadership may change during an outage.
            if not self._leads_here():
                await self._wakeup.notify()

        with suppress(Unavailable):  # stopped meanwhile: the recoverer of the leader notifies the relay
            await self._outage.retry(notify, stopping=stopping)


class NotifiedRelay:
    """A service of the leader: the relay or a similar service, and a listener for the wake-ups of `OutboxNotifier`."""

    def __init__(self, relay: Notifiable, wakeup: Wakeup) -> None:
        self._relay, self._wakeup = relay, wakeup

    async def run(self, stopping: asyncio.Event) -> None:
        """Run the relay until `stopping` is set."""
        # A reader of a former leader may still be blocked at the wake-up.
        await self._wakeup.claim()
        # Without its listener the relay would miss commits, so a failure of one ends both, and both are restarted.
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(self._listen(), name="listen for commits")
            await self._relay.run(stopping)
            listener.cancel()

    async def _listen(self) -> None:
        while True:
            with only_our_cancellation():
                woken = await self._wakeup.wait(_LISTEN_S)
            if woken:
                self._relay.notify()
