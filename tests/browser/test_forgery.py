"""A real browser with a session, and what pages of others get out of it: nothing.

To a browser another port of the same host is the same site: it sends our cookie for such a page, SameSite or not.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Response
from playwright.async_api import Page
from pydantic import SecretStr

from tests.browser.chromium import Visitors
from tidegate.http import Binding
from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.dispatch import RequestInput
from tidegate.http.routes import route
from tidegate.http.server import HttpService
from tidegate.http.session_routes import SessionRoutes
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "operate-0123456789abcdef"
_ASK = """async ([method, url, headers, body]) => {
    const options = { method, headers, body: body ?? undefined, credentials: "include" };
    if (new URL(url).origin !== location.origin) options.mode = "no-cors";
    try {
        const answer = await fetch(url, options);
        return { status: answer.status, told: answer.type === "opaque" ? null : await answer.json() };
    } catch (error) {
        return { status: null, told: String(error) };
    }
}"""


class Word(RequestInput, frozen=True, kw_only=True):
    """Something to say."""

    text: str = ""


class Books:
    """A page, something to look at, something to do; and what was looked at and done."""

    def __init__(self) -> None:
        self.looked = self.acted = 0

    async def page(self) -> Response[str]:
        """Show a page that may ask whoever it likes."""
        return Response("<!doctype html><title>x</title>", media_type="text/html", headers=_LAX)

    async def look(self) -> Word:
        """Look."""
        self.looked += 1
        return Word(text="secret")

    async def act(self, body: Word = Word()) -> Word:  # noqa: B008 - it cannot be changed
        """Act."""
        self.acted += 1
        return body


_LAX = {"content-security-policy": "connect-src *"}


@asynccontextmanager
async def site(books: Books, key: str | None) -> AsyncGenerator[str]:
    settings = HttpSettings(port=0, api_key=None if key is None else SecretStr(key))
    page = route("GET", "/page", books.page, "x", media_types=("text/html",), is_open=True, is_page=True)
    ours = [route("GET", "/v1/thing", books.look, "x"), route("POST", "/v1/thing", books.act, "x")]
    application, stopping = (
        build_application([page, *SessionRoutes(Access(settings)).routes(), *ours], settings),
        asyncio.Event(),
    )
    with Binding(settings) as binding:
        serving = asyncio.create_task(HttpService(application, binding, on_stop=lambda: None).run(stopping))
        yield binding.url
        stopping.set()
        await serving


async def ask(page: Page, method: str, url: str, body: str | None = None, **headers: str) -> dict[str, Any]:
    """What a script of the page gets."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await page.evaluate(_ASK, [method, url, named, body])


async def test_actions_of_the_own_page_are_accepted_and_of_foreign_pages_refused(visitors: Visitors):
    books = Books()
    async with site(books, KEY) as ours, site(Books(), None) as neighbour:
        page = await visitors.come()
        await page.goto(f"{ours}/page")
        opened = await ask(page, "POST", f"{ours}/v1/session", f'{{"key": "{KEY}"}}', content_type="application/json")
        assert opened["status"] == 200, opened
        assert await page.evaluate("document.cookie") == "", "no script sees it"
        assert (await ask(page, "POST", f"{ours}/v1/thing"))["status"] == 403
        acted = await ask(page, "POST", f"{ours}/v1/thing", x_tidegate_csrf=opened["told"]["csrf"])
        looked = await ask(page, "GET", f"{ours}/v1/thing")
        assert (acted["status"], looked["told"]) == (200, {"text": "secret"})
        assert (books.acted, books.looked) == (1, 1)

        other_site = neighbour.replace("127.0.0.1", "localhost")
        for foreign in (neighbour, other_site):
            await page.goto(f"{foreign}/page")
            for method in ("GET", "POST"):
                assert (await ask(page, method, f"{ours}/v1/thing"))["told"] in (None, "TypeError: Failed to fetch")
            told = await ask(page, "POST", f"{ours}/v1/thing", x_tidegate_csrf=opened["told"]["csrf"])
            assert told["status"] != 200
        assert (books.acted, books.looked) == (1, 1), "nothing came of it"

        await page.goto(f"{ours}/page")
        ended = await ask(page, "DELETE", f"{ours}/v1/session", x_tidegate_csrf=opened["told"]["csrf"])
        assert ended["told"] == {"logged_out": True}
        assert (await ask(page, "GET", f"{ours}/v1/thing"))["status"] == 401


async def test_without_a_key_a_page_on_another_port_is_refused_too(visitors: Visitors):
    books = Books()
    async with site(books, None) as ours, site(Books(), None) as neighbour:
        page = await visitors.come()
        await page.goto(f"{neighbour}/page")
        for method in ("GET", "POST"):
            await ask(page, method, f"{ours}/v1/thing")
        assert (books.acted, books.looked) == (0, 0)
        await page.goto(f"{ours}/page")
        assert (await ask(page, "POST", f"{ours}/v1/thing"))["status"] == 200
