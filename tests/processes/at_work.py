"""Processes of a deployment that work inside a test, and end in good order with it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from tidegate.engine.source_cell import Collector
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.supervisor import Supervisor
from tidegate.system import Context


@asynccontextmanager
async def at_work(process: Supervisor) -> AsyncGenerator[None]:
    """It runs for the length of a block."""
    running = asyncio.create_task(process.run())
    try:
        yield
    finally:
        process.stop()
        report = await running
    assert report.is_clean, report


def collecting(parts: Context, collector: Collector, handlers: Sequence[Handler] = ()) -> Supervisor:
    """A process with all that a collector has, and with further `handlers`."""
    return build_process(
        parts,
        handlers=[*collector.handlers, *handlers],
        services=collector.services,
        leader_services={"recovery": collector.recovery_service},
        on_death=[collector.recovery_service.notify],
    )
