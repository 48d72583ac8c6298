"""Repeats the collection and the proof of `make demo` with different start times: `python -m chaos.demo [--runs N]`.

The world is small and the quotas are large, so that a run takes seconds. The start times cover an hour evenly because
the simulator's past ends at a full hour. An hour passes for the simulator between the collection and the proof.

Exit 0 when every proof succeeded, 1 when one failed.
"""

import argparse
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import uvloop
from examples.github_demo import LOG, collected, console, prove

from tidegate.cli.running import configure_log
from tidegate.core.clock import ManualClock
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, Sizes, WorldShape

HOUR = timedelta(hours=1)
WORLD = WorldShape(users=3, repositories=2, sizes=Sizes(issues=5, pulls=5, commits=5), quirks=False, events=200)


async def attempt(folder: Path, *, started: timedelta, passes: timedelta) -> bool:
    """Collect and prove once.

    `started` is the time from the end of the generated past to the start, `passes` the time that passes for the
    simulator between collection and proof. Returns whether the proof succeeded.
    """
    now = datetime.now(UTC)
    clock = ManualClock(now)
    config = SimulatorConfig(world=msgspec.structs.replace(WORLD, epoch=now - started))
    async with GithubSimulator(config, clock) as simulator, collected(simulator, folder) as collection:
        clock.advance(passes)
        return await prove(simulator, collection.documents.of("github"))


def main() -> int:
    """Run the attempts and print how many failed."""
    parser = argparse.ArgumentParser(prog="python -m chaos.demo", description="Repeats the demo's proof.")
    parser.add_argument("--runs", type=int, default=200, help="how often")
    runs: int = parser.parse_args().runs
    configure_log(LOG)
    console.quiet = True
    failed = list[timedelta]()
    for number in range(runs):
        started = HOUR * number / runs
        with tempfile.TemporaryDirectory(prefix="tidegate-demo-", dir="/tmp") as folder:
            if not uvloop.run(attempt(Path(folder), started=started, passes=HOUR)):
                failed.append(started)
                print(f"failed when started {started} after the end of the generated past", flush=True)
    print(f"{runs} runs, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
