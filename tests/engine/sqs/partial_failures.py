"""A server in front of SQS that refuses some of what it is given, as SQS does."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from tests.servers.sqs import SqsServer

REFUSALS: dict[str, tuple[int, dict[str, str], dict[str, str]]] = {
    "access denied": (
        403,
        {"__type": "com.amazonaws.sqs#AccessDeniedException", "message": "User is not authorized to perform this"},
        {"x-amzn-query-error": "AccessDenied;Sender"},
    ),
    "no such queue": (
        400,
        {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "The specified queue does not exist."},
        {"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"},
    ),
}
"""Status, body and headers of answers with which AWS refuses a request."""


class PartiallyFailingServer:
    """Of each batch it takes the first entry, as long as it is told to; and it may ask for a pause altogether.

    With `refusal` (a key of `REFUSALS`) it refuses all requests, and counts them by action.
    """

    def __init__(self, sqs: SqsServer) -> None:
        self._sqs, self.endpoint = sqs, ""
        self.is_picky, self.throttles = False, 0
        self.refusal: str | None = None
        self.refused = Counter[str]()

    async def answer(self, request: web.Request) -> web.Response:
        if self.refusal is not None:
            self.refused[request.headers["X-Amz-Target"].rpartition(".")[2]] += 1
            status, reason, headers = REFUSALS[self.refusal]
            return web.json_response(reason, status=status, headers=headers, content_type="application/x-amz-json-1.0")
        if self.throttles:
            self.throttles -= 1
            said = {"__type": "com.amazonaws.sqs#ThrottlingException", "message": "Rate exceeded"}
            return web.json_response(said, status=400, content_type="application/x-amz-json-1.0")
        body: dict[str, Any] = await request.json()
        refused: list[Any] = []
        if self.is_picky and "Entries" in body:
            body["Entries"], refused = body["Entries"][:1], body["Entries"][1:]
        headers = {name: request.headers[name] for name in ("X-Amz-Target", "Content-Type", "Authorization")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._sqs.endpoint, json=body, headers=headers) as reply,
        ):
            told = await reply.json(content_type=None)
        told["Failed"] = [
            {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError", "Message": "try again"}
            for entry in refused
        ]
        return web.json_response(told, content_type="application/x-amz-json-1.0")


@asynccontextmanager
async def picky_server(sqs: SqsServer) -> AsyncGenerator[PartiallyFailingServer]:
    picky, app = PartiallyFailingServer(sqs), web.Application()
    app.router.add_post("/{path:.*}", picky.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    picky.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield picky
    await runner.cleanup()
