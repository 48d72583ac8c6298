"""Tells the leader that this process committed something that the leader works on.

The relay, like others of its kind, runs in one process; the others ring its wakeup after a commit. A ring that fails
is tried again until it succeeds. A process that dies between its commit and the ring is noticed when its lease ends,
and the recoverer of the leader has the relay look for what it left.
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
    """A service that looks for work when it is told to."""

    def notify(self) -> None:
        """There may be something to do."""
        ...


class OutboxNotifier:
    """A service of every process: rings after commits that announced `topic`.

    `leads_here` says that whoever works on it is in this process, and heard of it already.
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
        self._outage = Outage(f"announcer.{topic}")
        self._committed = asyncio.Event()
        self._committed.set()  # what this process committed before we listened

    async def run(self, stopping: asyncio.Event) -> None:
        """Ring after commits, until told to stop; what was committed until then is announced."""
        silence = self._database.subscribe(self._topic, self._committed.set)
        try:
            while self._committed.is_set() or not stopping.is_set():
                await unless(stopping, self._committed.wait())
                if self._committed.is_set():
                    self._committed.clear()
                    await self._announce(stopping)
        finally:
            silence()

    async def _announce(self, stopping: asyncio.Event) -> None:
        async def ring() -> None:
            if not self._leads_here():
                await self._wakeup.notify()

        with suppress(Unavailable):  # told to stop meanwhile: the recoverer of the leader has the relay look
            await self._outage.retry(ring, stopping=stopping)


class NotifiedRelay:
    """A duty of the leader: the relay, or another of its kind, and an ear at the wakeup that the announcers ring."""

    def __init__(self, relay: Notifiable, wakeup: Wakeup) -> None:
        self._relay, self._wakeup = relay, wakeup

    async def run(self, stopping: asyncio.Event) -> None:
        """Relay until told to stop."""
        await self._wakeup.claim()
        # A relay that hears nothing any more must not go on: it falls with its ear, and both are started again.
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(self._listen(), name="listen for commits")
            await self._relay.run(stopping)
            listener.cancel()

    async def _listen(self) -> None:
        while True:
            with only_our_cancellation():
                rung = await self._wakeup.wait(_LISTEN_S)
            if rung:
                self._relay.notify()
