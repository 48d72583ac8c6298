"""All five systems at work, on embedded parts: `python -m examples.live`, or `make dashboard`. Ctrl-C ends it.

Three simulators, one `tidegate up`, and a load over HTTP. All data is in a temporary folder, which is removed at
the end. With `--seconds` it ends by itself.
"""

import argparse
import asyncio
import signal
from collections.abc import Sequence

import uvloop
from examples.live.deployment import Deployment, open_deployment
from rich.console import Console

console = Console(highlight=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; exit 0 when it ran until it was stopped."""
    parser = argparse.ArgumentParser(prog="make dashboard", description="All five systems at work, and the dashboard.")
    parser.add_argument("--port", type=int, default=0, help="where the dashboard is; 0: any free port")
    parser.add_argument("--seconds", type=float, default=None, help="end after so long, instead of at Ctrl-C")
    given = parser.parse_args(arguments)
    return uvloop.run(_run(given.port, given.seconds))


async def _run(port: int, seconds: float | None) -> int:
    shown = asyncio.create_task(_show(port, seconds))
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, shown.cancel)
    await asyncio.wait([shown])
    return 0 if shown.cancelled() else shown.result()


async def _show(port: int, seconds: float | None) -> int:
    """Run until cancelled, or for `seconds`; 1 when a part of it ended before."""
    async with open_deployment(port) as deployment:
        console.print(f"[bold]The dashboard[/]  {deployment.url}/\nCtrl-C ends it and removes all data.")
        failures = await _failures(deployment, seconds)
    for failure in failures:
        console.print(f"[red]{failure}[/]")
    return 1 if failures else 0


async def _failures(deployment: Deployment, seconds: float | None) -> list[str]:
    """What ended by itself within `seconds`."""

    async def process() -> None:
        raise RuntimeError(f"exit code {await deployment.process.wait()}")

    parts = {
        "the load": asyncio.create_task(deployment.activity.go_on()),
        "tidegate up": asyncio.create_task(process()),
    }
    try:
        await asyncio.wait(parts.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return [f"{name} ended: {task.exception()!r}" for name, task in parts.items() if task.done()]
    finally:
        for task in parts.values():
            task.cancel()
        await asyncio.wait(parts.values())


if __name__ == "__main__":
    raise SystemExit(main())
