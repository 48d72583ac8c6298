"""`make scenarios`, or `python -m scenarios [--only N ...] [--transport ...] [--seconds S] [--json] [--list]`.

Exit 0 when every figure is as it should be, 1 when one is not.
"""

import argparse
import sys

import msgspec
import uvloop

from scenarios import cluster, coalescing, failures, rate_limits, reading
from scenarios.report import table
from scenarios.running import Options, perform
from scenarios.scenario import Scenario
from scenarios.stage import On
from tidegate.core.telemetry.logs import configure_logs

_LEAST_SECONDS = 4
_FAMILIES = (reading, rate_limits, coalescing, failures, cluster)
ALL: tuple[Scenario, ...] = tuple(
    sorted((each for family in _FAMILIES for each in family.SCENARIOS), key=lambda s: s.number)
)


def main() -> int:
    """Run the selected scenarios."""
    given = _parser().parse_args()
    if given.list:
        _say("\n".join(f"{each.number:>3}  {each.title} ({', '.join(each.on)})" for each in ALL))
        return 0
    wanted = set(given.only or [each.number for each in ALL])
    if unknown := wanted - {each.number for each in ALL}:
        _parser().error(f"there is no scenario {', '.join(map(str, sorted(unknown)))}; --list shows them")
    if given.seconds < _LEAST_SECONDS:
        _parser().error(f"--seconds must be at least {_LEAST_SECONDS}: less is no load")
    transports = (On.STREAMS, On.KAFKA) if given.transport == "both" else (On(given.transport),)
    options = Options(seconds=given.seconds, body_bytes=given.body_bytes, is_quiet=given.json)
    configure_logs("console", "error")
    plays = [(each, on) for each in ALL if each.number in wanted for on in each.on if on in (*transports, On.SERVER)]
    results = uvloop.run(perform(plays, options))
    _say(msgspec.json.format(msgspec.json.encode(results)).decode() if given.json else table(results))
    return 0 if all(result.passed for result in results) else 1


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scenarios", description="The load scenarios of snapshots.")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="only those of these numbers")
    parser.add_argument(
        "--transport", choices=["streams", "kafka", "both"], default="both", help="what events travel on"
    )
    parser.add_argument("--seconds", type=float, default=10, help="how long load lasts where a scenario is about load")
    parser.add_argument("--body-bytes", type=int, default=300_000, help="the size of an upstream's answer")
    parser.add_argument("--json", action="store_true", help="print the results as JSON, and nothing else")
    parser.add_argument("--list", action="store_true", help="show which there are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
