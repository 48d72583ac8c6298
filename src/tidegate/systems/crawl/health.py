"""How an identity stands with a host: the arithmetic of the gate, for the copy in SQL.

1 is healthy. Each rest halves it, each call that is answered without one adds a twentieth, and time heals: from nothing
to all in half an hour. Rests of which nobody said how long they must be are twice as long where one soon follows
another.
"""

from datetime import datetime, timedelta

import msgspec

HEALTHY = 1.0
_PER_ANSWER = 0.05
_HEALS_IN = timedelta(minutes=30)
_SOON = timedelta(minutes=10)
_LONGEST_GUESS = timedelta(hours=1)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment."""

    score: float = HEALTHY
    resting_until: datetime | None = None
    rests: int = 0
    """Those that followed each other."""
    refusals: int = 0
    updated_at: datetime

    def score_at(self, now: datetime) -> float:
        """What it has become by itself."""
        healed = max(timedelta(0), now - self.updated_at) / _HEALS_IN
        return min(HEALTHY, self.score + healed)

    def is_resting(self, now: datetime) -> bool:
        """Whether it must not call at this moment."""
        return self.resting_until is not None and now < self.resting_until

    def refused(self, now: datetime, span: timedelta, *, is_guess: bool) -> "Health":
        """It has to rest. Whoever is refused during a rest had called before it: that is the same rest."""
        until, rests, score = self.resting_until, self.rests, self.score_at(now)
        if not self.is_resting(now):
            rests = rests + 1 if until is not None and now - until < _SOON else 1
            score /= 2
        if is_guess:
            span = max(span, min(span * 2 ** min(max(rests, 1) - 1, 30), _LONGEST_GUESS))
        return Health(
            score=score,
            resting_until=max(until or now, now + span),
            rests=rests,
            refusals=self.refusals + 1,
            updated_at=now,
        )

    def answered(self, now: datetime) -> "Health":
        """A call was answered, and nobody asked for a rest. During one that proves nothing: it was made before."""
        if self.is_resting(now):
            return self
        score = min(HEALTHY, self.score_at(now) + _PER_ANSWER)
        return msgspec.structs.replace(self, score=score, updated_at=now)
