"""Which result of a subject is kept, in whatever order and from whichever process the results arrive.

The version of a result is the time at which its request was sent: the time of its permit by the server's clock, in µs.
The clock of the process and the time of processing are not used, so a worker that was frozen during a request does not
overwrite a newer result. The version of a result is never lower than that of its event, and the versions of events grow
beyond every version seen before (see `Coalescer`), even if the server lost its data or its clock was set back.

The rules are pure functions. The store applies them while it holds the lock of the row; random schedules test them
(`python -m chaos.schedules`).
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from tidegate.systems.snapshots.model import SnapshotSubject

_US_PER_MS = 1000


class VersionedResult(Protocol):
    """The result of a request."""

    @property
    def subject(self) -> SnapshotSubject:
        """The subject that was requested."""
        ...

    @property
    def version(self) -> int:
        """The time of the request; see `version_of_result`."""
        ...

    @property
    def hash(self) -> str | None:
        """Hash of the body; None: the upstream has no such subject."""
        ...


class VersionedRow(Protocol):
    """The stored state of a subject."""

    @property
    def version(self) -> int:
        """Version of the result that was written last; 0: none was written."""
        ...

    @property
    def current_hash(self) -> str | None:
        """Hash of its body; None: the upstream had no such subject, or nothing was written."""
        ...


R = TypeVar("R", bound=VersionedResult)


def version_of_result(event_version: int, granted_at_ms: int) -> int:
    """Return the version of a result: when its permit was granted, but never lower than the version of its event."""
    return max(event_version, granted_at_ms * _US_PER_MS)


def newest(results: Iterable[R]) -> dict[SnapshotSubject, R]:
    """Return the newest result of each subject; of two with equal versions, the first."""
    found: dict[SnapshotSubject, R] = {}
    for result in results:
        before = found.get(result.subject)
        # Strictly lower: of equal versions the first stays, as in `replaces`.
        if before is None or before.version < result.version:
            found[result.subject] = result
    return found


def replaces(result: VersionedResult, row: VersionedRow) -> bool:
    """Return whether `result` may replace what `row` has.

    The same result is accepted again, because the outcome of its first commit may be unknown. Of two different results
    with equal versions, the one written first stays, so that all copies agree.
    """
    if result.version != row.version:
        return result.version > row.version
    return result.hash == row.current_hash


def is_failure_current(version: int, row_version: int) -> bool:
    """Return whether a failed request is recorded: not if a request sent at that time or later succeeded."""
    return version > row_version
