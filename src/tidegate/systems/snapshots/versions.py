"""Which result of a subject counts, whichever process brings it and however late.

A result's version is the time at which its request was sent, by the server's clock (that of the permit), in µs. The
process's own clock and the time of processing have no part in it, so a worker that was frozen in the middle of a call
does not undo what another brought meanwhile. The version is never lower than that of its event: versions of events grow
beyond every version that was seen (see `Coalescer`), also where the server lost its data or its clock was set back.

The rules are pure: the store applies them under the lock of the row, and random schedules test them
(`python -m chaos.schedules`).
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from tidegate.systems.snapshots.model import SnapshotSubject

_US_PER_MS = 1000


class VersionedResult(Protocol):
    """What a call brought."""

    @property
    def subject(self) -> SnapshotSubject:
        """The subject that was asked for."""
        ...

    @property
    def version(self) -> int:
        """See `version_of_result`."""
        ...

    @property
    def hash(self) -> str | None:
        """Of its body; None: the upstream has no such subject."""
        ...


class VersionedRow(Protocol):
    """What the database has."""

    @property
    def version(self) -> int:
        """Of the result that was written last; 0: none was."""
        ...

    @property
    def current_hash(self) -> str | None:
        """Of its body; None: the upstream had no such subject, or nothing was written."""
        ...


R = TypeVar("R", bound=VersionedResult)


def version_of_result(event_version: int, granted_at_ms: int) -> int:
    """The version of what a call brought: when its permit was granted, and never lower than that of its event."""
    return max(event_version, granted_at_ms * _US_PER_MS)


def newest(results: Iterable[R]) -> dict[SnapshotSubject, R]:
    """The one result of each subject that counts; of two that were sent in the same moment, the first."""
    found: dict[SnapshotSubject, R] = {}
    for result in results:
        before = found.get(result.subject)
        if before is None or before.version < result.version:
            found[result.subject] = result
    return found


def counts(result: VersionedResult, row: VersionedRow) -> bool:
    """Whether it may be written over what the row has. The same result counts again: its first commit may be unknown.

    Of two that were sent in the same moment the one that was written first stays, so that all copies agree.
    """
    if result.version != row.version:
        return result.version > row.version
    return result.hash == row.current_hash


def failure_counts(version: int, row_version: int) -> bool:
    """Whether a failed call of this version is news: not where one that was sent then or later has succeeded."""
    return version > row_version
