"""How long `tidegate collect` and other collectors take for 20 repositories, on the clock, with slow answers.

The first run starts with an empty folder; the second finds nothing changed. Both include the start of the command.
"""

import time

from bench.figures import Figure, Section
from bench.github_peers import TIDEGATE, installed_collectors, name_of, prepare_collector
from tidegate_simulators.github import Behaviour

LATENCIES_MS, ROUNDS = (5, 100), 3
FIRST_S, AGAIN_S = 2.5, 1.0
"""Targets at the shorter latency."""


async def measure() -> Section:
    """Measure each collector in turn; the best round of each counts."""
    best: dict[tuple[int, str, str], float] = {}
    for latency_ms in LATENCIES_MS:
        for _ in range(ROUNDS):
            for name in installed_collectors():
                async with prepare_collector(name, behaviour=Behaviour(latency_ms=latency_ms)) as collector:
                    for run in ("first run", "again, nothing changed"):
                        began = time.monotonic()
                        ended = await collector.run()
                        if not ended.missing:
                            key = latency_ms, run, name
                            best[key] = min(best.get(key, float("inf")), time.monotonic() - began)
    return Section(
        "Collection time",
        [
            Figure(
                f"{latency_ms} ms, {run}: {name_of(name)}", f"{took_s:.2f} s", *_verdict(latency_ms, run, name, took_s)
            )
            for (latency_ms, run, name), took_s in best.items()
        ],
        "Issues, pull requests and commits of 20 repositories, 4,000 documents; each answer takes this latency, "
        f"give or take half of it, on the same cores. The best of {ROUNDS} rounds. Collectors that missed an item are "
        "left out.",
    )


def _verdict(latency_ms: int, run: str, name: str, took_s: float) -> tuple[str, bool | None]:
    if name != TIDEGATE or latency_ms != LATENCIES_MS[0]:
        return "", None
    most = FIRST_S if run == "first run" else AGAIN_S
    return f"≤ {most} s", took_s <= most
