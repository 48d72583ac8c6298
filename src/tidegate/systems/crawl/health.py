"""The health of an identity at a host: the same arithmetic as in the gate, for the copy in SQL.

1 is healthy. Each rest halves the score, each answered call outside a rest adds a twentieth, and time restores it from
0 to 1 in half an hour. A rest of unspecified length is twice as long as the previous one if it follows soon.
"""

from datetime import datetime, timedelta

import msgspec

HEALTHY = 1.0
_PER_ANSWER = 0.05
_HEALS_IN = timedelta(minutes=30)
_SOON = timedelta(minutes=10)
_LONGEST_GUESS = timedelta(hours=1)


class IdentityHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of an identity at one host."""

    score: float = HEALTHY
    resting_until: datetime | None = None
    rests: int = 0
    """Number of rests in close succession."""
    refusals: int = 0
    updated_at: datetime

    def score_at(self, now: datetime) -> float:
        """The score after recovery by time."""
        healed = max(timedelta(0), now - self.updated_at) / _HEALS_IN
        return min(HEALTHY, self.score + healed)

    def is_resting(self, now: datetime) -> bool:
        """Whether it must not call the host at this moment."""
        return self.resting_until is not None and now < self.resting_until

    def refused(self, now: datetime, span: timedelta, *, is_guess: bool) -> "IdentityHealth":
        """Record a refusal. A refusal during a rest belongs to that rest, because its call was sent before."""
        until, rests, score = self.resting_until, self.rests, self.score_at(now)
        if not self.is_resting(now):
            # Refusals in close succession make the rests longer; after a quiet time the count begins anew.
            rests = rests + 1 if until is not None and now - until < _SOON else 1
            score /= 2
        if is_guess:
            # The exponent is bounded, because a timedelta would overflow.
            span = max(span, min(span * 2 ** min(max(rests, 1) - 1, 30), _LONGEST_GUESS))
        return IdentityHealth(
            score=score,
            # A refusal of a call that was sent earlier must not shorten the rest.
            resting_until=max(until or now, now + span),
            rests=rests,
            refusals=self.refusals + 1,
            updated_at=now,
        )

    def answered(self, now: datetime) -> "IdentityHealth":
        """Record an answered call. During a rest it changes nothing, because its call was sent before."""
        if self.is_resting(now):
            return self
        score = min(HEALTHY, self.score_at(now) + _PER_ANSWER)
        return msgspec.structs.replace(self, score=score, updated_at=now)
