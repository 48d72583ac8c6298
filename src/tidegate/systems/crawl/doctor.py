"""Checks of `tidegate doctor` for the crawl: whether the sites of scheduled crawls accept connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tidegate.core.errors import TidegateError
from tidegate.core.findings import Finding
from tidegate.engine.doctor import reach
from tidegate.engine.schedules.store import listed
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.sql.migrate import pending_migrations
from tidegate.systems.crawl import SOURCE

_MOST_SCHEDULES = 500
_MOST_HOSTS = 20


async def upstreams(settings: Settings) -> AsyncIterator[Finding]:
    """Check that the sites of schedules accept connections. No request is sent."""
    try:
        async with await Database.open(settings.effective_database_url) as database:
            if await pending_migrations(database):  # another check reports that
                return
            schedules = await database.read(listed, None, 0, _MOST_SCHEDULES, SOURCE)
    except (TidegateError, OSError):
        return
    urls = list(dict.fromkeys(str(each.options["url"]) for each in schedules if each.next_at is not None))
    for finding in await asyncio.gather(*(reach("crawl", url) for url in urls[:_MOST_HOSTS])):
        yield finding
