"""Three simulators and one `tidegate up`, on embedded parts in a folder that goes with them."""

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
from examples.live.activity import Activity, Api
from examples.live.upstreams import Ration, Upstreams, open_upstreams

_NOT_OURS = ("TIDEGATE_", "GITHUB_TOKEN")
"""What the environment says to another deployment."""


@dataclass(frozen=True)
class Deployment:
    """All of it, at work."""

    upstreams: Upstreams
    process: Process
    url: str
    """Where the dashboard is."""
    api: Api
    activity: Activity


@asynccontextmanager
async def open_deployment(port: int = 0, ration: Ration | None = None) -> AsyncGenerator[Deployment]:
    """Prepared; what goes on in it is `life.go_on`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-live-")))
        upstreams = await stack.enter_async_context(open_upstreams(ration or Ration()))
        process, url = await stack.enter_async_context(_tidegate_up(folder, upstreams, port))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        api = Api(session, url)
        activity = Activity(api, upstreams)
        await activity.prepare()
        yield Deployment(upstreams, process, url, api, activity)


@asynccontextmanager
async def _tidegate_up(folder: Path, upstreams: Upstreams, port: int) -> AsyncGenerator[tuple[Process, str]]:
    command = [str(Path(sys.executable).with_name("tidegate")), "up", "--json", "--port", str(port)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    environment = {**ours, **upstreams.environment(), "TIDEGATE_DATA_DIR": str(folder / "data")}
    # In a separate session: Ctrl-C in the terminal goes to this process, which stops the other one.
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=folder, stdout=PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        banner = await process.stdout.readline()
        if not banner:
            raise SystemExit(f"tidegate up did not start: exit code {await process.wait()}")
        yield process, msgspec.json.decode(banner)["url"]
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
