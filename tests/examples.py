"""How many examples a property is tried with: few in every run, more where somebody has the time for it.

`TIDEGATE_EXAMPLES=10x` gives each property ten times as many.
"""

import os

VARIABLE = "TIDEGATE_EXAMPLES"
USUAL = 50
"""For a property that says nothing itself."""


def examples(usual: int = USUAL) -> int:
    """So many in a usual run, and as many times that as the environment says."""
    times = os.environ.get(VARIABLE, "1x")
    if not times.endswith("x") or not times[:-1].isdecimal() or int(times[:-1]) < 1:
        raise ValueError(f"{VARIABLE}={times}: it has to be like 10x")
    return usual * int(times[:-1])
