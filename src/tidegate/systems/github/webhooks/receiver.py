"""Receives, applies and lists deliveries; the docstring of the package describes the steps and crash recovery.

Routes: `/v1/github/webhook` receives deliveries, `/v1/github/deliveries` lists them.
"""

import asyncio
import hmac
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import Annotated

import msgspec
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.batching import Batcher
from tidegate.core.clock import monotonic_ms
from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.http.asgi import HttpRequest
from tidegate.http.dispatch import RequestInput, read_body
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.runtime.delivery import Handler, Undeliverable
from tidegate.storage.documents import DocumentStore
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.sql.outbox import Event
from tidegate.systems.github import kinds
from tidegate.systems.github.webhooks import deliveries, payloads
from tidegate.systems.github.webhooks.deliveries import DeliveryView, WebhookDelivery
from tidegate.systems.github.webhooks.metrics import (
    GITHUB_WEBHOOK_APPLY,
    GITHUB_WEBHOOK_DELIVERIES,
    GITHUB_WEBHOOK_DOCUMENTS,
)
from tidegate.systems.github.webhooks.payloads import DeliveryContext
from tidegate.systems.github.webhooks.settings import GithubWebhookSettings

ID, EVENT, SIGNATURE = "x-github-delivery", "x-github-event", "x-hub-signature-256"
_MOST_BYTES = 96 * 1024 * 1024
"""Maximum total size of bodies in memory, in bytes."""
_IN_A_BATCH = 100
_LARGE = 256 * 1024
_ID_FORM = re.compile("[A-Za-z0-9-]{1,100}")
_ANSWER_WITHIN_S = 8.0
"""GitHub gives up after 10 s."""
_PREFIX = "sha256="
_UNKNOWN = "other"


class DeliveryOutcome(StrEnum):
    """The outcome of receiving a delivery."""

    ACCEPTED = "accepted"  # stored, and applied soon
    DUPLICATE = "duplicate"  # stored before
    IGNORED = "ignored"  # the event is not supported
    PONG = "pong"  # GitHub tests the address


class Receipt(msgspec.Struct, frozen=True):
    """The answer to a delivery."""

    delivery: str
    """GitHub's id of the delivery (`X-GitHub-Delivery`)."""
    result: DeliveryOutcome


class WrongSignature(TidegateError):
    """The delivery is not signed with a secret of the settings."""

    problem = "signature_refused"


class TooManyDeliveries(TidegateError):
    """The deliveries in memory have reached the limit of this process."""

    problem = "too_many"


class _Accepting(msgspec.Struct, frozen=True):
    delivery: WebhookDelivery
    is_new: asyncio.Future[bool]


class Webhooks:
    """Receives deliveries of GitHub's webhooks and applies them to documents."""

    def __init__(self, database: Database, documents: DocumentStore, settings: GithubWebhookSettings) -> None:
        self._database, self._documents, self.settings = database, documents, settings
        self._secrets = [each.get_secret_value().encode() for each in settings.secrets]
        self._accepting = Batcher[_Accepting](self._accept, most=_IN_A_BATCH, under_way=2)
        self._held_bytes = 0

    @property
    def handler(self) -> Handler:
        """Applies accepted deliveries; called by the leader's relay."""
        return Handler(deliveries.EVENT, "github-webhook", self.apply)

    @contextmanager
    def room_for(self, size: int) -> Generator[None]:
        """Reserve memory for a body; raises `TooManyDeliveries` if there is none."""
        # A single delivery is always accepted, however large it is.
        if self._held_bytes and self._held_bytes + size > _MOST_BYTES:
            GITHUB_WEBHOOK_DELIVERIES.labels(_UNKNOWN, "refused").inc()
            raise TooManyDeliveries("too many deliveries at once; send it again later")
        self._held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Verify, read and store a delivery. When this returns, it is durable.

        Raises `WrongSignature`, `InvalidArgument` for invalid headers or an invalid payload, and `Unavailable` if
        the database refuses.
        """
        event = headers.get(EVENT, "")
        label = event if event in payloads.EVENTS or event == "ping" else _UNKNOWN
        try:
            receipt = await self._receive(headers, event, body)
        except Exception:
            GITHUB_WEBHOOK_DELIVERIES.labels(label, "refused").inc()
            raise
        GITHUB_WEBHOOK_DELIVERIES.labels(label, receipt.result.value).inc()
        return receipt

    async def _receive(self, headers: Mapping[str, str], event: str, body: bytes) -> Receipt:
        """Check the signature of a delivery, and wait until it is stored.

        Raises `WrongSignature`, `InvalidArgument`, and `TimeoutError` if it is not stored in time.
        """
        # First: nothing of an unsigned request is parsed.
        if not self._is_signed(headers.get(SIGNATURE, ""), body):
            raise WrongSignature("X-Hub-Signature-256 does not match the body with any secret of this installation")
        delivery_id = headers.get(ID, "")
        if not _ID_FORM.fullmatch(delivery_id):
            raise InvalidArgument("X-GitHub-Delivery", delivery_id[:100], "must be the id of a delivery")
        if event not in payloads.EVENTS:
            return Receipt(delivery_id, DeliveryOutcome.PONG if event == "ping" else DeliveryOutcome.IGNORED)
        payload = payloads.read(event, body)
        delivery = WebhookDelivery(
            id=delivery_id,
            event=event,
            action=payload.action,
            repository=payload.repository.full_name,
            repository_id=payload.repository.id,
            # Compressed outside of the transaction, which other deliveries wait for.
            body=await _compressed(body),
        )
        accepting = _Accepting(delivery, asyncio.get_running_loop().create_future())
        self._accepting.add(accepting)
        # A timeout does not cancel the batch. If it is stored later, the redelivery of GitHub is a duplicate.
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            is_new = await accepting.is_new
        return Receipt(delivery_id, DeliveryOutcome.ACCEPTED if is_new else DeliveryOutcome.DUPLICATE)

    def _is_signed(self, signature: str, body: bytes) -> bool:
        """Whether one of the secrets matches the signature. All are tried, so the duration does not show which."""
        given = signature.removeprefix(_PREFIX).encode(errors="replace")
        is_signed = False
        for secret in self._secrets:
            is_signed |= hmac.compare_digest(hmac.new(secret, body, "sha256").hexdigest().encode(), given)
        return is_signed and signature.startswith(_PREFIX)

    async def _accept(self, batch: Sequence[_Accepting]) -> None:
        """Store deliveries in one transaction. Of several with one id the first is new."""
        try:
            new = await self._database.transaction(deliveries.accept, [each.delivery for each in batch])
        except Exception as error:
            for each in batch:
                if not each.is_new.done():
                    each.is_new.set_exception(error)
            return
        for each in batch:
            if not each.is_new.done():
                each.is_new.set_result(each.delivery.id in new)
            # Further copies of the delivery in this batch are duplicates.
            new.discard(each.delivery.id)

    async def apply(self, event: Event) -> None:
        """Write the documents of a delivery, once. Raises `Undeliverable` if a document is invalid."""
        began_ms, delivery_id = monotonic_ms(), str(event.payload)
        waiting = await self._database.read(deliveries.waiting, delivery_id)
        if waiting is None:
            return
        kind, body = waiting
        try:
            report = payloads.report(kind, body, await self._situation(kind, body))
        except InvalidArgument as error:
            raise Undeliverable(str(error)) from None
        # Before the transaction: MongoDB writes the documents here, and conditional writes can be repeated. In SQL they
        # are written by the transaction.
        staged = await self._documents.stage_conditional(report.writes, completed=report.completed)
        written = await self._database.transaction(partial(deliveries.apply, delivery_id=delivery_id, staged=staged))
        if written is not None:
            GITHUB_WEBHOOK_DOCUMENTS.labels(kind).inc(written.changed + written.gone)
            GITHUB_WEBHOOK_APPLY.observe((monotonic_ms() - began_ms) / 1000)

    async def _situation(self, kind: str, body: bytes) -> DeliveryContext:
        repository = None
        if kind == "repository":
            payload = payloads.read(kind, body)
            repository = await self._documents.get(kinds.REPOSITORY, str(payload.repository.id))
        return DeliveryContext(await self._database.read(deliveries.latest_run), repository)

    async def close(self) -> None:
        """Store all received deliveries."""
        await self._accepting.close()


async def _compressed(body: bytes) -> bytes:
    """Compress a payload for storage; a large one in a thread."""
    if len(body) < _LARGE:
        return deliveries.compress(body)
    return await asyncio.to_thread(deliveries.compress, body)


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
                is_high_volume=True,
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
