"""Campaigns behind HTTP, in this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

from tests.http.serving import Client
from tidegate.app.serving import http_context, serve_apis
from tidegate.http import Binding
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.systems.campaigns.api.routes import campaign_api
from tidegate.systems.campaigns.service import Campaigns


def serve_campaigns(campaigns: Campaigns, settings: HttpSettings, binding: Binding) -> HttpService:
    """A service that answers for campaigns, and for nothing else."""
    http = http_context(settings, campaigns.valkey, campaigns.database)
    return serve_apis([campaign_api(campaigns, http)], http, binding)


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
