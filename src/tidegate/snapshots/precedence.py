"""Which result of a subject counts, whoever brings it and however late.

The newer version does. Two workers can have one version, when an event came twice: to one that was given up for dead,
and to its heir. Then the later check counts, so that a worker which comes back to life does not undo its heir's work.

Nothing here knows of a database: the store decides by these rules under the lock of the row, and a million random
schedules hold them to their promise (`python -m chaos.schedules`).
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol, TypeVar

from tidegate.snapshots.subject import Subject


class Result(Protocol):
    """What a call brought."""

    @property
    def subject(self) -> Subject:
        """Whose it is."""
        ...

    @property
    def version(self) -> int:
        """Of its event."""
        ...

    @property
    def checked_at(self) -> datetime:
        """When the upstream said so."""
        ...


class Row(Protocol):
    """What the database has."""

    @property
    def version(self) -> int:
        """Of the event whose result was written last; 0: none was."""
        ...

    @property
    def last_checked_at(self) -> datetime | None:
        """When the upstream was asked last."""
        ...


R = TypeVar("R", bound=Result)


def newest(results: Iterable[R]) -> dict[Subject, R]:
    """Of each subject the one result that counts."""
    found: dict[Subject, R] = {}
    for result in results:
        before = found.get(result.subject)
        if before is None or (before.version, before.checked_at) <= (result.version, result.checked_at):
            found[result.subject] = result
    return found


def counts(result: Result, row: Row) -> bool:
    """Whether it may be written over what the row has."""
    if result.version != row.version:
        return result.version > row.version
    return row.last_checked_at is None or result.checked_at >= row.last_checked_at


def failure_counts(version: int, row_version: int) -> bool:
    """Whether it is news that the event of this version failed: not where one as new, or newer, has succeeded."""
    return version > row_version
