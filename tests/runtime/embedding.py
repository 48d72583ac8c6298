"""`embedding.py`: a web service under uvicorn whose lifespan runs a process of ours; it says what stops, and how."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.process import build_process
from tidegate.settings import Settings


def say(words: str) -> None:
    """Also in a signal handler, where a buffered stream may be in the middle of a write."""
    os.write(1, f"{words}\n".encode())


class Worker:
    async def run(self, stopping: asyncio.Event) -> None:
        say("working")
        await stopping.wait()
        say("worker drained")


class Server(uvicorn.Server):
    def handle_exit(self, sig: int, frame: object) -> None:
        say("uvicorn was signalled")
        super().handle_exit(sig, frame)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def lifespan(_application: Starlette) -> AsyncGenerator[None]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_context(Settings(data_dir=Path(folder))) as parts,
            build_process(parts, services={"worker": Worker()}).running(),
        ):
            yield
        say("lifespan ended")


if __name__ == "__main__":
    configure_logs(level="warning")
    Server(uvicorn.Config(Starlette(lifespan=lifespan), uds=f"{tempfile.mkdtemp()}/socket", log_config=None)).run()
