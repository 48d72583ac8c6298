"""The random schedules on a real server and a real database; the same steps must give the same results."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from chaos.schedules.environment import BEGIN_MS, IDS, SETTINGS, SUBJECTS, Brought, Line

from tidegate.connections import open_database
from tidegate.core.clock import ManualClock, from_ms, milliseconds
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, CoalescerKeys, Outcome
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import store
from tidegate.systems.snapshots.committer import FinishedEvent, write_all
from tidegate.systems.snapshots.events import FailedRefresh, FailureReason
from tidegate.systems.snapshots.model import unpack
from tidegate.systems.snapshots.store import Refreshed
from tidegate.systems.snapshots.tables import snapshot_history, snapshot_status, snapshots
from tidegate.systems.snapshots.transports.protocol import Delivery

KEEP_MS = milliseconds(SETTINGS.keep_version)


class RealDependencies:
    """See `Ground`. A server forgets keys by its own clock, which stands still here: so they are deleted by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self._runner, self._stack = asyncio.Runner(), AsyncExitStack()
        self._valkey: Valkey = self._do(Valkey.connect(url))
        settings = Settings(data_dir=folder, auto_migrate=True)
        self._database = self._do(self._stack.enter_async_context(open_database(settings)))
        self._clock = ManualClock()
        self._coalescer = Coalescer(self._valkey, SETTINGS, self._clock, name="real")
        self._forget_ms: dict[int, int] = {}
        self._saved: tuple[dict[Any, bytes], dict[int, int]] = ({}, {})

    def begin(self) -> None:
        self._do(self._valkey.execute("FLUSHALL"))
        self._do(self._database.transaction(_empty))
        self._forget_ms, self._saved = {}, ({}, {})
        self.set_time(BEGIN_MS)

    def set_time(self, now_ms: int) -> None:
        self._clock.advance(from_ms(now_ms) - self._clock.now())

    def request(self, subject: int, priority: Priority, known_version: int, token: str) -> Outcome:
        self._forget()
        asked = self._coalescer.request(IDS[subject], priority, known_version=known_version, token=token)
        before = self._do(self._coalescer.current_version(IDS[subject]))
        outcome: Outcome = self._do(asked)
        if not isinstance(outcome, AlreadyProcessing) and outcome.version != before:
            self._forget_ms[subject] = self._clock.pinned_ms + KEEP_MS
        return outcome

    def release(self, subject: int, version: int) -> bool:
        self._forget()
        return self._do(self._coalescer.release(IDS[subject], version))

    def confirm(self, subject: int, version: int) -> bool:
        self._forget()
        return self._do(self._coalescer.confirm(IDS[subject], version))

    def is_obsolete(self, subject: int, version: int) -> bool:
        self._forget()
        return self._do(self._coalescer.is_obsolete(IDS[subject], version))

    def write(self, results: Sequence[Brought]) -> list[bool]:
        """As the settler does, in one transaction."""
        items = [_done(each) for each in results]
        effects = iter(self._do(self._database.transaction(write_all, items, True)))
        versions = {n: self.line(n).version for n in range(len(SUBJECTS))}
        return [
            next(effects).is_taken if each.state is not None else each.version > versions[SUBJECTS.index(each.subject)]
            for each in results
        ]

    def line(self, subject: int) -> Line:
        known = self._do(self._database.read(store.read_many, [SUBJECTS[subject]]))[SUBJECTS[subject]]
        row, status = known.row, known.status
        has_failed = status is not None and status.has_failed
        if row is None:
            return Line(has_failed=has_failed)
        state = int(unpack(row.body)) if row.body is not None else 0
        return Line(row.version, state, has_failed)

    def flush(self) -> None:
        self._do(self._valkey.execute("FLUSHALL"))
        self._forget_ms = {}

    def save(self) -> None:
        self._forget()
        keys = self._do(self._valkey.execute("KEYS", "*"))
        self._saved = ({key: self._do(self._valkey.execute("DUMP", key)) for key in keys}, dict(self._forget_ms))

    def restore(self) -> None:
        self.flush()
        dumps, self._forget_ms = self._saved[0], dict(self._saved[1])
        for key, dump in dumps.items():
            self._do(self._valkey.execute("RESTORE", key, 0, dump))

    def close(self) -> None:
        self._do(self._stack.aclose())
        self._do(self._valkey.close())
        self._runner.close()

    def _forget(self) -> None:
        for subject, at_ms in list(self._forget_ms.items()):
            if at_ms <= self._clock.pinned_ms:
                keys = CoalescerKeys(self._valkey.unit("real"), IDS[subject])
                self._do(self._valkey.execute("DEL", keys.work))
                del self._forget_ms[subject]

    def _do(self, work: Any) -> Any:
        return self._runner.run(work)


def _done(brought: Brought) -> FinishedEvent:
    delivery = Delivery(key=brought.subject.id, value=b"{}", handle="1-0")
    if brought.state is not None:
        body = b"%d" % brought.state
        refreshed = Refreshed.of(brought.subject, brought.version, checked_at=brought.checked_at, body=body)
        return FinishedEvent(delivery=delivery, received_at=0.0, refreshed=refreshed)
    dead = FailedRefresh(
        event=msgspec.Raw(b"{}"),
        subject_id=brought.subject.id,
        reason=FailureReason.UPSTREAM_5XX,
        message="it failed",
        failed_at=datetime.now(UTC),
        worker="w",
    )
    return FinishedEvent(delivery=delivery, received_at=0.0, dead=dead, version=brought.version)


def _empty(tx: Transaction) -> None:
    for table in (snapshots, snapshot_history, snapshot_status):
        tx.execute(table.delete())
