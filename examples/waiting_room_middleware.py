"""ASGI middleware that puts a Tidegate waiting room in front of a Django or FastAPI application.

See docs/guides/waiting-room-for-django-and-fastapi.md.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

import aiohttp

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class WaitingRoom:
    """Lets admitted visitors pass and redirects all others to the waiting page.

    `protect` is the path prefix that needs an admission, `tidegate` the address of Tidegate for this server, `key` an
    API key with the role `read`.
    """

    def __init__(self, app: Application, *, room: str, protect: str, tidegate: str, key: str | None = None) -> None:
        self._app, self._room, self._protect = app, room, protect
        self._check_url = f"{tidegate}/v1/rooms/{room}/check"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._protect):
            return await self._app(scope, receive, send)
        match await self._check(self._pass_of(scope)):
            case 200:
                return await self._app(scope, receive, send)
            case 403:
                return await _answer(send, 303, b"location", f"/rooms/{self._room}".encode())
            case _:
                return await _answer(send, 503, b"retry-after", b"5")

    async def close(self) -> None:
        """Close the connections to Tidegate."""
        if self._session is not None:
            await self._session.close()

    def _pass_of(self, scope: Scope) -> str:
        header = b"; ".join(value for name, value in scope["headers"] if name == b"cookie").decode("latin-1")
        try:
            found = SimpleCookie(header).get(f"tidegate_pass_{self._room}")
        except CookieError:
            return ""
        return found.value if found else ""

    async def _check(self, shown: str) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=5))
        try:
            async with self._session.post(self._check_url, headers={"Tidegate-Pass": shown} if shown else {}) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 503  # without an answer, no admission


async def _answer(send: Send, status: int, name: bytes, value: bytes) -> None:
    headers = [(name, value), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
