"""Computes the rate of finished jobs from the counters of changed runs."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from tidegate.engine.reports.overview import EndedJobs

_MOST_REMEMBERED = 20_000
_MOST_MOVED = 5_000
"""Maximum number of runs per read; the others are read later."""


class JobRates(NamedTuple):
    """Rates in jobs per second."""

    done: float
    failed: float


class JobRateMeter:
    """Collects changed runs, and compares their counters with the previous ones."""

    def __init__(self) -> None:
        self._moved = set[int]()
        self._known: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._looked_at: datetime | None = None

    def mark_changed(self, moved: Collection[int] | None) -> None:
        """Mark runs as changed; None marks all known runs."""
        self._moved.update(self._known if moved is None else moved)

    def take_changed(self) -> list[int]:
        """Return the runs with counters that must be read now."""
        # The newest runs first: they are the active ones.
        taken = sorted(self._moved)[-_MOST_MOVED:]
        self._moved.difference_update(taken)
        return taken

    def update(self, found: Mapping[int, EndedJobs], now: datetime, elapsed_s: float | None) -> JobRates:
        """The rate of finished jobs since the last read, `elapsed_s` seconds ago.

        None means that the last read is too old or missing. Then the counters count for the time until the next read.
        """
        done = failed = 0
        for run_id, ended in found.items():
            before = self._known.pop(run_id, None)
            if before is None:
                before = (0, 0) if self._is_new(ended) else (ended.succeeded, ended.failed)
            if elapsed_s is None:
                # Keep the old counters and read the run again, so that the jobs are counted over a known time.
                self._known[run_id] = before
                self._moved.add(run_id)
            else:
                self._known[run_id] = (ended.succeeded, ended.failed)
                # Not below zero: a failed job that is retried lowers the counter of failures.
                done, failed = done + max(0, ended.succeeded - before[0]), failed + max(0, ended.failed - before[1])
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        self._looked_at = now
        return JobRates(0.0, 0.0) if not elapsed_s else JobRates(done / elapsed_s, failed / elapsed_s)

    def _is_new(self, ended: EndedJobs) -> bool:
        """Whether the run began after the last read, so that all its finished jobs are new."""
        return self._looked_at is not None and ended.created_at >= self._looked_at
