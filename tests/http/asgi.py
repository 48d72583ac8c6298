"""An application asked without a network: who asks, and over what, is whatever a test says."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from tests.http.serving import Reply
from tidegate.http.asgi import Application, Message


async def ask(
    app: Application,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    *,
    client: str = "192.0.2.1",
    scheme: str = "http",
) -> Reply:
    """One request, answered to its end. A body is sent as JSON, unless it is bytes."""
    raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    given = {name.lower(): value for name, value in (headers or {}).items()}
    typed = {} if body is None or isinstance(body, bytes) else {"content-type": "application/json"}
    sent = {"host": "127.0.0.1", **typed, **given}
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent.items()],
        "client": (client, 4711),
        "server": ("127.0.0.1", 8321),
    }
    messages: list[Message] = []

    sent_body = False

    async def receive() -> Message:
        nonlocal sent_body
        if sent_body:
            await asyncio.Event().wait()  # whoever asks stays
        sent_body = True
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    answer = {name.decode("latin-1"): value.decode("latin-1") for name, value in messages[0]["headers"]}
    return Reply(messages[0]["status"], answer, b"".join(each.get("body", b"") for each in messages[1:]))
