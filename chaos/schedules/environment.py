"""The coalescer and the rows that the actors of a schedule use. In memory here; tests use real servers."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

import msgspec

from chaos.schedules.server import SimulatedServer, at_once
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import Coalescer, CoalescerSettings, Outcome
from tidegate.systems.snapshots import versions
from tidegate.systems.snapshots.model import SnapshotSubject

SETTINGS = CoalescerSettings()
SUBJECTS = (SnapshotSubject("character", "a"), SnapshotSubject("character", "b"))
IDS = tuple(each.id for each in SUBJECTS)
BEGIN_MS = 1_800_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Brought(msgspec.Struct, frozen=True):
    """A result: the number of the upstream's state; None: the refresh failed permanently."""

    subject: SnapshotSubject
    version: int
    checked_at: datetime
    state: int | None

    @property
    def hash(self) -> str | None:
        """See `versions.Result`."""
        return str(self.state)


class Line(msgspec.Struct):
    """A row."""

    version: int = 0
    state: int = 0
    has_failed: bool = False

    @property
    def current_hash(self) -> str | None:
        """See `versions.Row`."""
        return str(self.state) if self.version else None


class Environment(Protocol):
    """One schedule's ground."""

    def begin(self) -> None:
        """As new."""
        ...

    def set_time(self, now_ms: int) -> None:
        """The server's clock."""
        ...

    def request(self, subject: int, priority: Priority, known_version: int, token: str) -> Outcome:
        """See `Coalescer.request`."""
        ...

    def release(self, subject: int, version: int) -> bool:
        """See `Coalescer.release`."""
        ...

    def confirm(self, subject: int, version: int) -> bool:
        """See `Coalescer.confirm`."""
        ...

    def is_obsolete(self, subject: int, version: int) -> bool:
        """See `Coalescer.is_obsolete`."""
        ...

    def write(self, results: Sequence[Brought]) -> list[bool]:
        """One transaction: which of them were taken."""
        ...

    def line(self, subject: int) -> Line:
        """The row as it is."""
        ...

    def flush(self) -> None:
        """The server loses its data."""
        ...

    def save(self) -> None:
        """The server writes its data down."""
        ...

    def restore(self) -> None:
        """Restart the server with its stored data."""
        ...


class _Clock:
    pinned_ms = BEGIN_MS

    def now(self) -> datetime:
        return moment(self.pinned_ms)


class InMemory:
    """The real coalescer on the simulated server, and the store's rules on rows in memory."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._server = SimulatedServer()
        self._coalescer = Coalescer(cast("Any", self._server), SETTINGS, self._clock)
        self._lines: dict[SnapshotSubject, Line] = {}

    def begin(self) -> None:
        """See `Ground`."""
        self._server.reset()
        self._lines = {subject: Line() for subject in SUBJECTS}
        self.set_time(BEGIN_MS)

    def set_time(self, now_ms: int) -> None:
        """See `Ground`."""
        self._clock.pinned_ms = now_ms
        self._server.set_time(now_ms)

    def request(self, subject: int, priority: Priority, known_version: int, token: str) -> Outcome:
        """See `Ground`."""
        return at_once(self._coalescer.request(IDS[subject], priority, known_version=known_version, token=token))

    def release(self, subject: int, version: int) -> bool:
        """See `Ground`."""
        return at_once(self._coalescer.release(IDS[subject], version))

    def confirm(self, subject: int, version: int) -> bool:
        """See `Ground`."""
        return at_once(self._coalescer.confirm(IDS[subject], version))

    def is_obsolete(self, subject: int, version: int) -> bool:
        """See `Ground`."""
        return at_once(self._coalescer.is_obsolete(IDS[subject], version))

    def write(self, results: Sequence[Brought]) -> list[bool]:
        """What `settling` has done in one transaction: successes first, then the failures."""
        newest = versions.newest(each for each in results if each.state is not None)
        taken = {id(each) for each in newest.values() if versions.replaces(each, self._lines[each.subject])}
        for each in newest.values():
            if id(each) in taken:
                line = self._lines[each.subject]
                line.version, line.state, line.has_failed = each.version, each.state or 0, False
        for each in results:
            line = self._lines[each.subject]
            if each.state is None and versions.is_failure_current(each.version, line.version):
                line.has_failed = True
                taken.add(id(each))
        return [id(each) in taken for each in results]

    def line(self, subject: int) -> Line:
        """See `Ground`."""
        return self._lines[SUBJECTS[subject]]

    def flush(self) -> None:
        """See `Ground`."""
        self._server.flush()

    def save(self) -> None:
        """See `Ground`."""
        self._server.save()

    def restore(self) -> None:
        """See `Ground`."""
        self._server.restore()


def moment(ms: int) -> datetime:
    """The time of so many milliseconds."""
    return EPOCH + timedelta(milliseconds=ms)
