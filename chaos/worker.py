"""What a worker of a campaign does: it is a process of the product, and can be made to die at a chosen point."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta

import uvloop

from chaos.crash_points import die_at
from chaos.messages import Order
from tidegate.core.telemetry.logs import configure_logs
from tidegate.engine import job_results, staging
from tidegate.engine.source import Subject
from tidegate.engine.source_cell import SourceCell
from tidegate.primitives.gate import scripts
from tidegate.runtime.supervisor import Supervisor
from tidegate.systems.github.opening import open_github
from tidegate.systems.github.settings import POOL

WORKING, LEADING, STOPPING = "working", "leading", "stopping"
"""States that workers report: ready for jobs and signals, leading, stopping."""

Say = Callable[[str], None]


def work(order: Order, *, lifeline: int, say: Say) -> int:
    """Work until asked to stop, or until the end of `lifeline`; returns 0 after a graceful stop."""
    configure_logs("console", order.log_level)
    if order.die_at:
        die_at(order.die_at)
    if order.first_pause_ms is not None:
        pause = timedelta(milliseconds=order.first_pause_ms)
        job_results._ASK_AGAIN = pause  # pyright: ignore[reportPrivateUsage]
        staging._REST = pause  # pyright: ignore[reportPrivateUsage]
        scripts.FIRST_CHECK = pause
    if order.drain_s is not None:
        Supervisor.__init__.__kwdefaults__ = {"drain_within": timedelta(seconds=order.drain_s), "restarts": None}
    return uvloop.run(_work(order, lifeline, say))


async def _work(order: Order, lifeline: int, say: Say) -> int:
    asyncio.get_running_loop().add_reader(lifeline, os._exit, 1)
    async with open_github(order.effective_settings) as collection:
        if order.begin:
            subject = Subject(user_id=order.begin, login=order.begin)
            await collection.orchestrator.begin("github", subject, pool=POOL)
        _announce_lead(collection, say)
        report = await collection.process(services={"announcement": Announcement(say)}).run(handle_signals=True)
    return 0 if report.is_clean else 1


class Announcement:
    """The last service to be started, and the first to be stopped: says both."""

    def __init__(self, say: Say) -> None:
        self._say = say

    async def run(self, stopping: asyncio.Event) -> None:
        """Report that the process is ready, and when it is asked to stop."""
        self._say(WORKING)
        await stopping.wait()
        self._say(STOPPING)


def _announce_lead(collection: SourceCell, say: Say) -> None:
    """Recovery is a service of the leader: it begins with the leadership."""
    service = collection.collector.recovery_service
    begin = service.run

    async def run(stopping: asyncio.Event) -> None:
        say(LEADING)
        await begin(stopping)

    setattr(service, "run", run)  # noqa: B010
