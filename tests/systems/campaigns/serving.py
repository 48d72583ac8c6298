"""Campaigns behind HTTP, in this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

from tests.http.serving import Client
from tidegate.app.settings.http import HttpSettings
from tidegate.http import Binding
from tidegate.http.serving import serve_campaigns
from tidegate.systems.campaigns.campaigns import Campaigns


@asynccontextmanager
async def served(campaigns: Campaigns, settings: HttpSettings | None = None) -> AsyncGenerator[Client]:
    """Somebody who asks them."""
    settings, stopping = settings or HttpSettings(port=0), asyncio.Event()
    with Binding(settings) as binding:
        service = serve_campaigns(campaigns, settings, binding)
        serving = asyncio.create_task(service.run(stopping))
        async with aiohttp.ClientSession() as session:
            try:
                yield Client(session, binding.url)
            finally:
                stopping.set()
                await serving
