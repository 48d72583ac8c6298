"""A deployment whose simulated GitHub sends webhooks to it over HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from tests.systems.github.deployment import SECRET, Deployment, deployed
from tests.waiting import until
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.runtime.waiting import end
from tidegate.storage.sql import Transaction, outbox
from tidegate.systems.github.webhooks.deliveries import github_deliveries
from tidegate.systems.github.webhooks.receiver import ADDRESS, WebhookRoutes
from tidegate_simulators.github.repository import Repository


class WebhookDeployment:
    """A deployment, the address at which it receives webhooks, and what tests ask of it."""

    def __init__(self, deployment: Deployment, url: str) -> None:
        self.deployment, self.url, self.sim = deployment, url, deployment.sim

    @property
    def login(self) -> str:
        """The first user of the world."""
        return self.sim.world.logins()[0]

    @property
    def repository(self) -> Repository:
        """The first repository of that user."""
        return self.sim.world.repositories_of(self.sim.world.require_account(self.login))[0]

    async def applied(self) -> None:
        """Wait until every delivery is sent, answered and applied."""
        await self.sim.webhooks.settled()
        await until(self._is_idle)

    async def _is_idle(self) -> bool:
        depth = await self.deployment.parts.database.read(outbox.depth)
        waiting = await self.deployment.parts.database.read(_waiting)
        return (depth.pending, waiting) == (0, 0)

    def statuses(self) -> list[int]:
        """How every delivery was answered."""
        return [attempt.status for each in self.sim.webhooks.deliveries for attempt in each.attempts]


def _waiting(tx: Transaction) -> int:
    those = select(func.count()).select_from(github_deliveries).where(github_deliveries.c.applied_at.is_(None))
    return tx.execute(those).scalar_one()


@asynccontextmanager
async def webhook_deployment(
    folder: Path, valkey_url: str, *, registers: bool = True, **options: Any
) -> AsyncGenerator[WebhookDeployment]:
    """A deployment that receives the webhooks of its simulator; `options` are those of `deployed`."""
    async with deployed(folder, valkey_url, **options) as deployment:
        settings = HttpSettings(port=0)
        binding = Binding(settings)
        routes = WebhookRoutes(deployment.webhooks, deployment.parts.database).routes()
        stopping = asyncio.Event()
        service = HttpService(build_application(routes, settings), binding, on_stop=lambda: None)
        serving = asyncio.create_task(service.run(stopping))
        try:
            it = WebhookDeployment(deployment, f"{binding.url}{ADDRESS}")
            if registers:
                deployment.sim.webhooks.register(it.url, SECRET)
            yield it
        finally:
            await deployment.sim.webhooks.settled()
            stopping.set()
            await serving
            await end(serving)
            binding.close()
