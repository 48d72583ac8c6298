"""Which calls keep copies fresh: fixed tiers against learned change rates, with equally many calls (simulated)."""

from collections.abc import Callable, Sequence
from statistics import fmean

from bench.figures import Figure, Section
from bench.prefetch_simulation import Comparison, Habit, Outcome, Population, compare

SEEDS = range(2, 7)  # by the first, weights and bounds were chosen
FEW_SEEDS = range(2, 4)
LEAST_GAIN = 0.30
STATED = Population(subjects=800)
SMALLER = 400

OTHERS: dict[str, tuple[Population, float]] = {
    "half of the calls": (Population(subjects=SMALLER), 0.5),
    "reads and changes are independent (correlation 0)": (Population(subjects=SMALLER, correlation=0.0), 1.0),
    "readers read what changes (correlation 0.9)": (Population(subjects=SMALLER, correlation=0.9), 1.0),
    "changes at regular intervals": (Population(subjects=SMALLER, habit=Habit.REGULAR), 1.0),
    "all change equally often": (Population(subjects=SMALLER, change_spread=0.05), 1.0),
    "most change 20 times a day": (Population(subjects=SMALLER, changes=20.0), 1.0),
}
NOTE = f"""Staleness is the share of time in which a copy differs from the upstream's, as a mean over all subjects; "by
reader" weighs a subject by how often it is read. Age is the mean time for which a change that a copy lacks has
been available upstream. Population: {STATED.subjects} subjects; changes a day log-normal around {STATED.changes:g}
(sigma {STATED.change_spread:g}), reads a day around {STATED.reads:g} (sigma {STATED.read_spread:g}), correlated by
{STATED.correlation:g}; a week to learn, a week that counts; seeds {SEEDS[0]} to {SEEDS[-1]}, elsewhere {FEW_SEEDS[0]}
to {FEW_SEEDS[-1]}. Each policy has as many calls as the tiers made. "Uniform" checks all subjects equally often: by
subject it is about as good, since the loss of the tiers comes mostly from checking the few subjects that are read often
twenty-four times as often as the rest; by reader it is the worst. By subject, learned rates are not better than uniform
if all subjects change equally often (there is nothing to learn) or if most change too often for the budget (they cannot
be kept fresh, and tiers serve their readers better). With half of the calls the gain is small.
Refreshes that readers cause are left out."""


async def measure() -> Section:
    stated = [compare(STATED, seed=seed) for seed in SEEDS]
    gain, by_reader = _gain(stated, _by_subject), _gain(stated, _by_reader)
    calls = [
        _mean(stated, lambda each: each.tiers.calls_per_day),
        _mean(stated, lambda each: each.learned.calls_per_day),
    ]
    worst = min(_gain([each], _by_subject) for each in stated)
    figures = [
        Figure(
            "staleness, learned instead of tiers",
            _told(stated, _by_subject),
            f"≥ {LEAST_GAIN:.0%} less",
            gain >= LEAST_GAIN,
        ),
        Figure("the least of its seeds", f"{worst:.0%} less", f"≥ {LEAST_GAIN:.0%} less", worst >= LEAST_GAIN),
        Figure("staleness by reader", _told(stated, _by_reader), "less", by_reader > 0),
        Figure("age", _ages(stated)),
        Figure("calls a day", f"{calls[0]:,.0f} → {calls[1]:,.0f}", "no more", calls[1] <= calls[0]),
    ]
    for name, (population, share) in OTHERS.items():
        found = [compare(population, seed=seed, share=share) for seed in FEW_SEEDS]
        figures.append(
            Figure(name, f"{_told(found, _by_subject)}; by reader {_told(found, _by_reader)}; {_ages(found)}")
        )
    return Section("Prefetch", figures, " ".join(NOTE.split()))


def _by_subject(outcome: Outcome) -> float:
    return outcome.by_subject


def _by_reader(outcome: Outcome) -> float:
    return outcome.by_reader


def _mean(found: Sequence[Comparison], of: Callable[[Comparison], float]) -> float:
    return fmean(map(of, found))


def _gain(found: Sequence[Comparison], of: Callable[[Outcome], float]) -> float:
    return 1 - _mean(found, lambda each: of(each.learned)) / _mean(found, lambda each: of(each.tiers))


def _told(found: Sequence[Comparison], of: Callable[[Outcome], float]) -> str:
    tiers, learned, uniform = (
        _mean(found, lambda each: of(each.tiers)),
        _mean(found, lambda each: of(each.learned)),
        _mean(found, lambda each: of(each.uniform)),
    )
    change = learned / tiers - 1
    return f"{tiers:.1%} → {learned:.1%} ({change:+.0%}; uniform {uniform:.1%})"


def _ages(found: Sequence[Comparison]) -> str:
    tiers, learned = _mean(found, lambda each: each.tiers.age_hours), _mean(found, lambda each: each.learned.age_hours)
    return f"age {tiers:.2f} → {learned:.2f} h"
