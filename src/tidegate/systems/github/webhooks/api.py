"""Routes of webhooks: `/v1/github/webhook` receives deliveries, `/v1/github/deliveries` lists them."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.http.asgi import HttpRequest
from tidegate.http.dispatch import RequestInput, read_body
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.github.webhooks import deliveries
from tidegate.systems.github.webhooks.deliveries import DeliveryView
from tidegate.systems.github.webhooks.receiver import EVENT, ID, SIGNATURE, Receipt, Webhooks

TAG = "github"
ADDRESS = "/v1/github/webhook"
_HEADERS = {
    "X-GitHub-Event": "The event.",
    "X-GitHub-Delivery": "The id of the delivery; a redelivery has the same id.",
    "X-Hub-Signature-256": "`sha256=` and the HMAC-SHA256 of the body with a secret of the setting "
    "`github_webhooks.secrets`.",
}


class DeliveryFilter(RequestInput, frozen=True, kw_only=True):
    """Which deliveries to list, and how many."""

    waiting: bool = False
    """Only those that are not applied yet."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of deliveries, newest first."""

    deliveries: list[DeliveryView]


class WebhookRoutes:
    """Handlers of the routes of webhooks."""

    def __init__(self, webhooks: Webhooks, database: Database) -> None:
        self._webhooks, self._database = webhooks, database

    def receiving(self) -> Sequence[HTTPRouteHandler]:
        """The route that GitHub calls. It needs no key: deliveries are signed."""
        largest = self._webhooks.settings.largest_body
        problems = (
            *(ProblemType.SIGNATURE_REFUSED, ProblemType.TOO_LARGE, ProblemType.TOO_SLOW),
            *(ProblemType.TOO_MANY, ProblemType.INVALID),
        )
        return [
            route(
                "POST",
                ADDRESS,
                self.receive_delivery,
                TAG,
                status=202,
                is_open=True,
                is_chatter=True,
                largest_body=largest,
                problems=problems,
                sent=_HEADERS,
            )
        ]

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """Return all routes, the one that GitHub calls first."""
        return [*self.receiving(), route("GET", "/v1/github/deliveries", self.list_deliveries, TAG)]

    async def receive_delivery(self, request: HttpRequest) -> Receipt:
        """Receive a delivery of a GitHub webhook.

        202 means that it is stored; the documents change within a second. A delivery that was stored before is a
        `duplicate`, an event that is not understood is `ignored`, and neither changes anything.
        """
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdigit() else self._webhooks.settings.largest_body
        if size > self._webhooks.settings.largest_body:
            raise RequestFailed(ProblemType.TOO_LARGE, f"the limit is {self._webhooks.settings.largest_body:,} bytes")
        # Reserved before the body is read, by its announced size: many large deliveries at once
        # must not exhaust the memory.
        with self._webhooks.room_for(size):
            body = await read_body(request)
            headers = {name: request.headers.get(name, "") for name in (ID, EVENT, SIGNATURE)}
            return await self._webhooks.receive(headers, body)

    async def list_deliveries(self, query: DeliveryFilter) -> DeliveryPage:
        """List deliveries of webhooks, newest first, with the time at which they were applied."""
        return DeliveryPage(deliveries=await self._database.read(_recent, query))


def _recent(tx: Transaction, query: DeliveryFilter) -> list[DeliveryView]:
    return deliveries.recent(tx, limit=query.limit, only_waiting=query.waiting)
