"""The browser, and what its pages must not do."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.servers.registry import record_used, skip_or_fail
from tests.waiting import PATIENCE_S

PHONE, DESKTOP = {"width": 375, "height": 740}, {"width": 1100, "height": 860}
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_WITHIN_MS = 1000 * PATIENCE_S


@dataclass
class Watched:
    """What a page did."""

    complaints: list[str] = field(default_factory=list[str])
    """Of the browser: errors of scripts, and what the page's policy forbids."""
    addresses: list[str] = field(default_factory=list[str])
    """All that were asked for."""


class Visitors:
    """Users, each with a new browser profile."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []

    async def come(self, *, watched: Watched | None = None, **options: Any) -> Page:
        """One more, with an empty tab."""
        usual: dict[str, Any] = {"locale": "en-GB", "viewport": DESKTOP}
        context = await self._browser.new_context(**(usual | options))
        self._contexts.append(context)
        context.set_default_timeout(_WITHIN_MS)
        page = await context.new_page()
        if watched is not None:
            page.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: watched.complaints.append(str(error)))
            page.on("request", lambda request: watched.addresses.append(request.url))
        return page

    async def go(self) -> None:
        """All of them."""
        for context in self._contexts:
            await context.close()
        self._contexts.clear()


@asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    """The Chromium of this machine; without one the test is skipped, or fails where all servers are required."""
    program = next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)
    if program is None:
        skip_or_fail("Chromium", "it is not installed; `make services` does that")
    async with async_playwright() as playwright:
        # Without a sandbox, which a container does not have: it sees nothing but our own pages.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        record_used("Chromium", browser.version)
        try:
            yield browser
        finally:
            await browser.close()
