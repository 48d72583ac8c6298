"""Opens the queues on AWS that the settings name."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tidegate.core.errors import InvalidSettings
from tidegate.engine.sqs.settings import AwsSettings
from tidegate.primitives.stream import MessageSource, TicketedStream
from tidegate.runtime.service import Service
from tidegate.runtime.timekeeper import DueSource

if TYPE_CHECKING:
    from tidegate.engine.sqs.inbox import Fire
    from tidegate.engine.sqs.queue import Queue

_CONNECT_WITHIN_S = 5
_ANSWER_WITHIN_S = 30
"""Longer than the longest wait for a message that SQS allows."""
_CONNECTIONS = 50


@dataclass(frozen=True)
class Aws:
    """The AWS parts of a process; empty if the settings name no queue."""

    intake: MessageSource | None = None
    """Where workers read jobs; None to read the stream itself."""
    services: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """Services for every process, with or without a worker."""
    sources: Sequence[DueSource] = ()
    """Sources of due times for the leader."""
    triggers: "Queue | None" = None
    attempts: int = 1

    def inbox(self, fire: "Fire") -> Mapping[str, Service]:
        """The service that fires schedules on messages, if a trigger queue is set."""
        if self.triggers is None:
            return {}
        from tidegate.engine.sqs.inbox import TriggerInbox

        return {"triggers": TriggerInbox(self.triggers, fire, attempts=self.attempts)}


@asynccontextmanager
async def open_aws(settings: AwsSettings, passage: TicketedStream, owner: str) -> AsyncGenerator[Aws]:
    """Open everything that the settings name, for the duration of a block.

    Raises `InvalidSettings` if the SDK is not installed or finds no region.
    """
    if settings.trigger_queue_url is None and settings.task_queue_url is None:
        yield Aws()
        return
    require_library(settings)
    async with open_queues(settings) as (triggers, tasks):
        if tasks is None:
            yield Aws(triggers=triggers, attempts=settings.trigger_attempts)
            return
        from tidegate.engine.sqs.forwarder import Forwarder, OverdueTickets, QueueIntake

        yield Aws(
            intake=QueueIntake(tasks, passage, owner),
            services={"forwarder": Forwarder(tasks, passage, owner)},
            sources=[OverdueTickets(tasks, passage)],
            triggers=triggers,
            attempts=settings.trigger_attempts,
        )


def require_library(settings: AwsSettings) -> None:
    """Raise `InvalidSettings` if a queue is set and the SDK is not installed."""
    named = settings.trigger_queue_url is not None or settings.task_queue_url is not None
    if named and find_spec("aiobotocore") is None:
        raise InvalidSettings('queues on SQS need the library aiobotocore: pip install "tidegate[aws]"')


async def check_queues(settings: AwsSettings) -> list[str]:
    """Check that every queue of the settings exists and can be accessed; returns their addresses."""
    require_library(settings)
    async with open_queues(settings) as queues:
        for queue in queues:
            if queue is not None:
                await queue.check()
    return [url for url in (settings.trigger_queue_url, settings.task_queue_url) if url is not None]


@asynccontextmanager
async def open_queues(settings: AwsSettings) -> "AsyncGenerator[tuple[Queue | None, Queue | None]]":
    """Open the trigger queue and the task queue, as far as the settings name them."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session
    from botocore.exceptions import NoRegionError

    from tidegate.engine.sqs.queue import Queue

    config = AioConfig(
        connect_timeout=_CONNECT_WITHIN_S,
        read_timeout=_ANSWER_WITHIN_S,
        max_pool_connections=_CONNECTIONS,
        retries={"total_max_attempts": 1},  # callers retry with their own pauses and log it
    )
    opening = get_session().create_client(
        "sqs", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config
    )
    urls = (settings.trigger_queue_url, settings.task_queue_url)
    try:
        async with opening as client:
            triggers, tasks = (
                None if url is None else Queue(client, url, visibility=settings.visibility_timeout) for url in urls
            )
            yield triggers, tasks
    except NoRegionError:
        raise InvalidSettings("the region of the queues is not known: set TIDEGATE_AWS__REGION") from None
