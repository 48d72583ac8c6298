"""`python -m chaos.simulation [--seed S] [--workers N] [--credentials N] ...`: exit 1 if an invariant was broken."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from chaos.simulation.fleet import Fleet, Plan, Report
from tidegate.connections import open_valkey
from tidegate.core.telemetry.logs import configure_logs
from tidegate.settings import Settings


async def simulate(plan: Plan) -> Report:
    """Play one plan on an embedded server."""
    with tempfile.TemporaryDirectory(prefix="tidegate-simulation-") as folder:
        async with open_valkey(Settings(data_dir=Path(folder))) as valkey:
            return await Fleet(valkey, plan).play()


def main() -> int:
    """Play the plan of the command line and print what happened."""
    plan, began = _plan(), time.monotonic()
    report = uvloop.run(simulate(plan))
    print(f"seed {plan.seed}: {plan.workers} workers, {plan.credentials:,} credentials in {plan.pools} pools")
    print(
        f"{report.jobs:,} jobs by {report.calls:,} calls in {report.finished_ms / 1000:.0f} s of virtual time "
        f"(bound {report.bound_ms / 1000:.0f} s), simulated in {time.monotonic() - began:.0f} s"
    )
    print(f"largest difference between two runs of a pool that both waited: {report.unfairness} jobs")
    for what, times in report.happened.items():
        print(f"{times:>10,}  {what}")
    print(f"history {report.digest}; broken invariants: {len(report.broken)}")
    for broken in report.broken[:20]:
        print(f"  {broken}")
    return 1 if report.broken else 0


def _plan() -> Plan:
    parser = argparse.ArgumentParser(prog="python -m chaos.simulation", description=main.__doc__)
    usual = Plan()
    names = ("seed", "workers", "credentials", "pools", "jobs_per_credential", "small_runs", "small_jobs", "faults")
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(usual, name))
    return msgspec.structs.replace(usual, **vars(parser.parse_args()))


if __name__ == "__main__":
    configure_logs(level="error")
    sys.exit(main())
