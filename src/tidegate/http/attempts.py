"""Allowances of subjects, such as client addresses, in the memory of one process.

They take effect at once and without a server. `SharedAttempts` adds what all processes have in common.
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
    """So many attempts at once, and another after so long."""

    burst: int
    another_after_s: float

    def __post_init__(self) -> None:
        require_positive("burst", self.burst)
        require_positive("another_after_s", self.another_after_s)

    @property
    def complete_after_s(self) -> float:
        """How long it takes until a used up allowance is complete again."""
        return self.burst * self.another_after_s


class Attempts:
    """What subjects have used of their allowance. Bounded: a subject whose allowance is complete is forgotten, and of
    too many the one that used its own longest ago."""

    def __init__(
        self,
        allowance: AttemptLimit,
        *,
        most_subjects: int = _MOST_SUBJECTS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowance, self._most, self._now = allowance, most_subjects, now
        # When an allowance is complete again says all about it: each attempt moves that by the price of one.
        self._complete_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._complete_at)

    def __contains__(self, subject: str) -> bool:
        """Whether a subject has used some of its allowance lately."""
        return self._complete_at.get(subject, 0.0) > self._now()

    def take(self, subject: str) -> float | None:
        """Count one attempt. Returns None where it is allowed, otherwise the seconds to wait."""
        now = self._now()
        after = max(now, self._complete_at.get(subject, 0.0)) + self.allowance.another_after_s
        wait_s = after - now - self.allowance.complete_after_s
        if wait_s > 0:
            return wait_s
        self._set(subject, after)
        return None

    def give_back(self, subject: str) -> None:
        """Undo the counting of one attempt."""
        if subject in self._complete_at:
            self._complete_at[subject] -= self.allowance.another_after_s

    def block(self, subject: str, wait_s: float) -> None:
        """Allow the next attempt after `wait_s`, and not before."""
        used_s = self.allowance.complete_after_s - self.allowance.another_after_s
        self._set(subject, self._now() + used_s + wait_s)

    def _set(self, subject: str, complete_at: float) -> None:
        self._complete_at.pop(subject, None)
        self._complete_at[subject] = complete_at  # behind those that were counted before
        now = self._now()
        while self._complete_at:
            oldest, complete_at = next(iter(self._complete_at.items()))
            if complete_at > now and len(self._complete_at) <= self._most:
                return
            del self._complete_at[oldest]


class SharedAttempts:
    """An allowance that all processes share.

    Valkey counts for all of them, and each counts for itself too: while Valkey is away, or where there is none, the
    allowance holds for each process. A subject that Valkey refuses is refused here without asking again.
    """

    def __init__(self, name: str, local: Attempts, valkey: Valkey | None = None) -> None:
        allowance, self._local = local.allowance, local
        interval = timedelta(seconds=allowance.another_after_s)
        self._shared = None if valkey is None else Throttle(valkey, name, burst=allowance.burst, interval=interval)

    def __contains__(self, subject: str) -> bool:
        """Whether this process knows that a subject has used some of its allowance lately."""
        return subject in self._local

    async def take(self, subject: str, item: str) -> int | None:
        """Count one attempt. Returns None where it is allowed, otherwise the seconds to wait."""
        wait_s = self._local.take(subject)
        if wait_s is None and self._shared is not None:
            try:
                wait = await self._shared.take(subject, item)
            except Unavailable:
                wait = None
            if wait is not None:
                wait_s = wait.total_seconds()
                self._local.block(subject, wait_s)
        return None if wait_s is None else math.ceil(wait_s)

    async def give_back(self, subject: str, item: str) -> None:
        """Undo the counting of one attempt."""
        self._local.give_back(subject)
        if self._shared is not None:
            try:
                await self._shared.give_back(subject, item)
            except Unavailable:
                return  # the allowance is complete again by itself, one attempt later
