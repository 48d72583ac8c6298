"""`make chaos`, or `python -m chaos [--seed S] [--documents N] [--minutes M] [--database ...] [--json]`.

The exit code is 0 if every guarantee was kept, otherwise 1.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from chaos.campaign import Backend, Plan, conduct
from chaos.fleet import ForkServerClient
from chaos.outcome import Outcome
from tidegate.core.telemetry.logs import configure_logs


def main() -> int:
    """Conduct a campaign on each database."""
    options = _options()
    configure_logs("console", "error")
    backends = list(Backend) if options.database == "both" else [Backend(options.database)]
    outcomes: list[Outcome] = []
    with ForkServerClient() as fork_server:
        for backend in backends:
            plan = Plan(
                backend=backend,
                seed=options.seed,
                documents=options.documents,
                minutes=options.minutes,
                workers=options.workers,
                kill_every_s=options.kill_every,
                lease_s=options.lease,
            )
            if not options.json:
                print(f"{backend}, seed {plan.seed}, at least {plan.documents:,} documents", flush=True)
            with tempfile.TemporaryDirectory(prefix="tidegate-chaos-", dir="/tmp") as folder:
                outcomes.append(
                    uvloop.run(conduct(plan, fork_server, Path(folder), _keep_quiet if options.json else _tell))
                )
            if not options.json:
                print(f"\n{outcomes[-1].table()}\n", flush=True)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(outcomes)).decode())
    return 0 if all(outcome.is_well for outcome in outcomes) else 1


def _tell(what: str) -> None:
    print(what, flush=True)


def _keep_quiet(_what: str) -> None: ...


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="A crash campaign.")
    parser.add_argument("--seed", type=int, default=1, help="of the world and of the choice of victims")
    parser.add_argument("--documents", type=int, default=20_000, help="how many there are to collect, at least")
    parser.add_argument("--minutes", type=float, default=1.0, help="about how long a campaign takes")
    parser.add_argument("--workers", type=int, default=4, help="how many live at once")
    parser.add_argument("--kill-every", type=float, default=2.0, metavar="SECONDS", help="how often one is killed")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help="how long a process may be silent; default 10")
    parser.add_argument("--database", choices=[*Backend, "both"], default="both", help="where the truth is kept")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON, and nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
