"""All five systems at work, on embedded parts: `python -m examples.live`, or `make dashboard`. Ctrl-C ends it.

Three simulators, one `tidegate up`, and people who use it over HTTP. Everything lives in a temporary folder, and goes
with it. With `--seconds` it ends by itself.
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
    """Run it; exit 0 when it ended as it was told to."""
    parser = argparse.ArgumentParser(prog="make dashboard", description="All five systems at work, and the dashboard.")
    parser.add_argument("--port", type=int, default=0, help="where the dashboard is; 0: any free port")
    parser.add_argument("--seconds", type=float, default=None, help="end after so long, instead of at Ctrl-C")
    given = parser.parse_args(arguments)
    return uvloop.run(_run(given.port, given.seconds))


async def _run(port: int, seconds: float | None) -> int:
    stopping = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stopping.set)
    async with open_deployment(port) as deployment:
        console.print(f"[bold]The dashboard[/]  {deployment.url}/\nCtrl-C ends it, and everything goes with it.")
        fallen = await _until(stopping, deployment, seconds)
    for line in fallen:
        console.print(f"[red]{line}[/]")
    return 1 if fallen else 0


async def _until(stopping: asyncio.Event, deployment: Deployment, seconds: float | None) -> list[str]:
    """Let it go on; what ended before it was told to."""

    async def process() -> None:
        raise RuntimeError(f"exit code {await deployment.process.wait()}")

    going_on = {
        "what goes on": asyncio.create_task(deployment.life.go_on()),
        "tidegate up": asyncio.create_task(process()),
    }
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait([*going_on.values(), told], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    fallen = [f"{name} ended: {task.exception()!r}" for name, task in going_on.items() if task.done()]
    for task in (*going_on.values(), told):
        task.cancel()
    await asyncio.gather(*going_on.values(), return_exceptions=True)
    return fallen


if __name__ == "__main__":
    raise SystemExit(main())
