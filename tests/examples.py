"""How many examples Hypothesis tries for a property.

The full tier tries as many as the property asks for, the quick tier a part of them. `TIDEGATE_EXAMPLES=10x` gives each
property ten times as many.
"""

import os

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.tiers import Tier

VARIABLE = "TIDEGATE_EXAMPLES"
USUAL = 50
"""For a property that names no number."""
_PART_IN_QUICK_TIER = 4
_LEAST = 3

_tier = Tier.FULL


def use(tier: Tier) -> None:
    """Set the tier of this run; called once, before the test modules are imported.

    Hypothesis also tries constants that it finds in the source of all loaded modules. The quick tier does without: each
    worker would read every module to find them, and each change of a constant would change the examples.
    """
    global _tier  # noqa: PLW0603 - decorators of test modules read it at import
    _tier = tier
    if tier is Tier.QUICK:
        none = Constants()
        providers._get_local_constants = lambda: none  # pyright: ignore[reportPrivateUsage]


def examples(usual: int = USUAL) -> int:
    """The number of examples for a property that asks for `usual`, in the tier of this run."""
    times = os.environ.get(VARIABLE, "1x")
    if not times.endswith("x") or not times[:-1].isdecimal() or int(times[:-1]) < 1:
        raise ValueError(f"{VARIABLE}={times}: it has to be like 10x")
    if _tier is Tier.QUICK:
        usual = min(usual, max(_LEAST, usual // _PART_IN_QUICK_TIER))
    return usual * int(times[:-1])
