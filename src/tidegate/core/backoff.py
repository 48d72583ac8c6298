"""How long to wait before the next try."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tidegate.core.arguments import require_at_most, require_not_negative, require_positive


@dataclass(frozen=True)
class Backoff:
    """Exponential growth with full jitter: anywhere from nothing to the ceiling, which doubles up to `most`.

    Full jitter spreads a crowd that failed together over the whole span, so it does not return together. A smaller
    `jitter` is the share of a wait that is drawn: with 0.1 it lies between nine tenths of the ceiling and all of it.
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
        """The longest wait after the `attempt`-th failure (the first is 1)."""
        require_positive("attempt", attempt)
        first, most = self.first.total_seconds(), self.most.total_seconds()
        try:
            return timedelta(seconds=min(most, first * self.factor ** (attempt - 1)))
        except OverflowError:
            return self.most

    def delay(self, attempt: int) -> timedelta:
        """A wait drawn for the `attempt`-th failure."""
        drawn = random.random()  # noqa: S311 - spreads load, guards nothing
        return self.ceiling(attempt) * (1 - self.jitter * (1 - drawn))


OUTAGE_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5), jitter=0.5)
"""Between two attempts at a server that is away or refuses: work resumes at most 5 s after its return."""

DEFECT_PAUSES = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=10))
"""Before a service that failed with an unexpected error is started again."""
