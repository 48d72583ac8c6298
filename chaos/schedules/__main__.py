"""`python -m chaos.schedules [--seed S] [--count N] [--processes P]`.

The exit code is 0 if no schedule broke a guarantee, otherwise 1: that schedule is printed with its relevant steps.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from chaos.schedules.campaign import Tally, conduct

_AT_ONCE = 10_000


def main() -> int:
    """Play them, on all cores."""
    options = _options()
    began, tally = time.monotonic(), Tally()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("forkserver")) as pool:
        parts = [
            pool.submit(conduct, options.seed, range(first, min(first + _AT_ONCE, options.count)))
            for first in range(0, options.count, _AT_ONCE)
        ]
        for part in as_completed(parts):
            tally.add(part.result())
            _show(tally, time.monotonic() - began)
            if tally.failures:
                pool.shutdown(cancel_futures=True)
                break
    print()
    for what, times in sorted(tally.happened.items()):
        print(f"{times:>14,}  {what}")
    for failure in tally.failures:
        print(failure)
    return 1 if tally.failures else 0


def _show(tally: Tally, took_s: float) -> None:
    pace = tally.schedules / took_s
    line = f"{tally.schedules:,} schedules of {tally.steps:,} steps in {took_s:.0f} s ({pace:,.0f}/s)"
    print(f"\r{line}", end="", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.schedules", description="Random schedules of snapshots.")
    parser.add_argument("--seed", type=int, default=1, help="of all schedules")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many are played")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many play at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
