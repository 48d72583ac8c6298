"""Pauses between attempts: exponential backoff with jitter."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tidegate.core.arguments import require_at_most, require_not_negative, require_positive


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff: a pause is drawn between zero and a ceiling, which grows by `factor` up to `most`.

    Full jitter spreads callers that failed together, so they do not retry together. `jitter` is the random share of a
    pause: with 0.1, pauses lie between 90 % and 100 % of the ceiling.
    """

    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=5)
    factor: float = 2.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        require_positive("first", self.first.total_seconds())
        require_positive("most", self.most.total_seconds())
        require_positive("factor", self.factor)
        require_not_negative("jitter", self.jitter)
        require_at_most("jitter", self.jitter, 1)

    def ceiling(self, attempt: int) -> timedelta:
        """The longest pause after the given failure, counted from 1."""
        require_positive("attempt", attempt)
        first, most = self.first.total_seconds(), self.most.total_seconds()
        try:
            return timedelta(seconds=min(most, first * self.factor ** (attempt - 1)))
        except OverflowError:
            # After many failures in a row, the power exceeds the range of a float.
            return self.most

    def delay(self, attempt: int) -> timedelta:
        """Draw a pause for the given failure, counted from 1."""
        drawn = random.random()  # noqa: S311 - spreads load, guards nothing
        return self.ceiling(attempt) * (1 - self.jitter * (1 - drawn))


OUTAGE_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5), jitter=0.5)
"""Pauses between attempts at a server that is unavailable or refuses: work resumes within 5 s of its return."""

DEFECT_PAUSES = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=10))
"""Pauses before a service that failed with an unexpected error is restarted."""
