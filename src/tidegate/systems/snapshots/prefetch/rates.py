"""How often a subject changes, learned from whether each check found a change.

A check tells only *that* something changed since the one before, not how often: the longer the time between, the less a
change says. Were every interval the same, counting would do; they are not, since what is learned decides when we look
next. So each check is weighed by its own interval.

Changes are taken for a Poisson process whose rate has a gamma distribution with the mean m and the shape a. Then

- no change within t:     m' = m / (1 + m t / a), exactly;
- a change within t:      m' = m (1 - q^(a+1)) / (1 - q^a)  with  q = 1 / (1 + m t / a), the exact mean of what is left.

The shape, which says how sure we are, is one more than the changes seen, up to a limit: what was seen long ago counts
for less, and a subject that changes its habits is followed. So the state is two columns: the mean and the count.
"""

import math

from tidegate.core.arguments import require_not_negative

PRIOR_RATE = 1.0
"""Changes per day of a subject that nothing is known of."""
LEAST_RATE = 1 / 365
MOST_RATE = 24.0 * 60.0
"""Nothing is learned beyond: once in a year, once in a minute."""
_A_MOMENT = 1e-8
"""A thousandth of a second, in days: two checks that close are one."""
_PRIOR_SHAPE = 1.0
_MOST_SHAPE = 12.0


def learn(rate: float | None, changes: int, elapsed_days: float, *, changed: bool) -> float:
    """The rate after a check, `elapsed_days` after the one before, that found a change or none.

    `changes`: how many checks found one before. The result is always from `LEAST_RATE` to `MOST_RATE`.
    """
    require_not_negative("elapsed_days", elapsed_days)
    mean = PRIOR_RATE if rate is None else min(max(rate, LEAST_RATE), MOST_RATE)
    if elapsed_days < _A_MOMENT:
        return mean
    shape = shape_of(changes)
    log_q = -math.log1p(mean * elapsed_days / shape)
    factor = math.expm1((shape + 1) * log_q) / math.expm1(shape * log_q) if changed else math.exp(log_q)
    return min(max(mean * factor, LEAST_RATE), MOST_RATE)


def shape_of(changes: int) -> float:
    """How sure we are of a rate after so many checks that found a change."""
    require_not_negative("changes", changes)
    return min(_PRIOR_SHAPE + changes, _MOST_SHAPE)
