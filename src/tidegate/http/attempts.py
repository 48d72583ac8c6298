"""Limits attempts per subject, such as a client address, in the memory of one process.

`SharedAttempts` also limits them across all processes, in Valkey.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tidegate.core.arguments import require_positive
from tidegate.core.errors import Unavailable
from tidegate.primitives.throttle import Throttle
from tidegate.storage.valkey import Valkey

_MOST_SUBJECTS = 10_000


@dataclass(frozen=True)
class AttemptLimit:
    """`burst` attempts at once, then one more every `another_after_s` seconds."""

    burst: int
    another_after_s: float

    def __post_init__(self) -> None:
        require_positive("burst", self.burst)
        require_positive("another_after_s", self.another_after_s)

    @property
    def complete_after_s(self) -> float:
        """Seconds until a used up allowance is restored completely."""
        return self.burst * self.another_after_s


class Attempts:
    """Counts the attempts of each subject.

    Memory is bounded: a subject is removed when its allowance is restored completely; if there are too many, the
    subject that was counted longest ago is removed.
    """

    def __init__(
        self,
        allowance: AttemptLimit,
        *,
        most_subjects: int = _MOST_SUBJECTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowance, self._most, self._now = allowance, most_subjects, now
        # One number describes an allowance: the time at which it is restored. Each attempt adds one interval to it.
        self._complete_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._complete_at)

    def __contains__(self, subject: str) -> bool:
        """Whether a part of the subject's allowance is used."""
        return self._complete_at.get(subject, 0.0) > self._now()

    def take(self, subject: str) -> float | None:
        """Count one attempt. Returns None if it is allowed, otherwise the seconds to wait."""
        now = self._now()
        after = max(now, self._complete_at.get(subject, 0.0)) + self.allowance.another_after_s
        # The attempt is allowed if the allowance would be restored within its full span; otherwise nothing is counted.
        wait_s = after - now - self.allowance.complete_after_s
        if wait_s > 0:
            return wait_s
        self._set(subject, after)
        return None

    def give_back(self, subject: str) -> None:
        """Undo the count of one attempt."""
        if subject in self._complete_at:
            self._complete_at[subject] -= self.allowance.another_after_s

    def block(self, subject: str, wait_s: float) -> None:
        """Refuse attempts for the next `wait_s` seconds."""
        used_s = self.allowance.complete_after_s - self.allowance.another_after_s
        self._set(subject, self._now() + used_s + wait_s)

    def _set(self, subject: str, complete_at: float) -> None:
        self._complete_at.pop(subject, None)
        self._complete_at[subject] = complete_at  # appended: the dictionary is ordered by last use
        now = self._now()
        while self._complete_at:
            oldest, complete_at = next(iter(self._complete_at.items()))
            if complete_at > now and len(self._complete_at) <= self._most:
                return
            del self._complete_at[oldest]


class SharedAttempts:
    """An allowance that all processes share.

    Attempts are counted in Valkey and in each process. While Valkey is unavailable or absent, the allowance applies
    to each process separately. A subject that Valkey refused is refused locally until its wait ends.
    """

    def __init__(self, name: str, local: Attempts, valkey: Valkey | None = None) -> None:
        allowance, self._local = local.allowance, local
        interval = timedelta(seconds=allowance.another_after_s)
        self._shared = None if valkey is None else Throttle(valkey, name, burst=allowance.burst, interval=interval)

    def __contains__(self, subject: str) -> bool:
        """Whether this process has counted attempts of the subject."""
        return subject in self._local

    async def take(self, subject: str, item: str) -> int | None:
        """Count one attempt. Returns None if it is allowed, otherwise the seconds to wait."""
        # Local first: what this process refuses costs no call.
        wait_s = self._local.take(subject)
        if wait_s is None and self._shared is not None:
            try:
                wait = await self._shared.take(subject, item)
            except Unavailable:
                wait = None
            if wait is not None:
                wait_s = wait.total_seconds()
                # Further attempts of this subject are refused here, without a call of the server.
                self._local.block(subject, wait_s)
        return None if wait_s is None else math.ceil(wait_s)

    async def give_back(self, subject: str, item: str) -> None:
        """Undo the count of one attempt."""
        self._local.give_back(subject)
        if self._shared is not None:
            try:
                await self._shared.give_back(subject, item)
            except Unavailable:
                return  # the attempt stays counted until the allowance is restored with time
