"""One SQS queue: typed, batched, with errors that say whether a retry helps."""

import asyncio
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import aiohttp
from botocore import exceptions
from botocore.parsers import ResponseParserError

from tidegate.core.arguments import require_at_most, require_not_negative, require_positive
from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger
from tidegate.core.telemetry.redaction import fit_to_keep
from tidegate.runtime.outage import Outage

log = get_logger(__name__)

T = TypeVar("T")

LARGEST_BATCH = 10
LONGEST_WAIT_S = 20
"""The limit of SQS."""
_CONCURRENCY = 8
"""Number of concurrent requests of one call."""
_TRANSIENT_CODES = frozenset(
    {"OverLimit", "RequestThrottled", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)
_UNAVAILABLE_ERRORS = (
    *(
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.CredentialRetrievalError,
        exceptions.MetadataRetrievalError,
    ),
    *(ResponseParserError, aiohttp.ClientError, OSError),
)
_LONGEST_REASON = 300
_REMEDY = "Check the address of the queue, the region and the permissions of the role"


class QueueUnavailable(Unavailable):
    """SQS did not answer, or asked for a pause."""


class Received(NamedTuple):
    """A received message, hidden from other receivers for a while."""

    id: str
    """The same at each delivery."""
    body: str
    receipt: str
    receives: int
    """How often it was received, including this time."""


class Unsent(NamedTuple):
    """The names of messages that could not be sent, and the reason."""

    names: list[str]
    error: Unavailable


class Queue:
    """A queue on SQS. All methods may be called concurrently."""

    def __init__(self, client: Any, url: str, *, visibility: timedelta) -> None:
        self._client, self._url, self._server = client, url, f"SQS ({url.rpartition('/')[2]})"
        self.visibility = visibility
        self._outages = {what: Outage(f"sqs.{what}") for what in ("delete", "hide")}

    async def check(self) -> None:
        """Check that the queue exists and can be accessed. Raises `QueueUnavailable` or `ServerRefused`."""
        with self._errors():
            await self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])

    async def receive(self, count: int, wait_s: float) -> list[Received]:
        """Return at most `count` (up to 10) messages as soon as there are some; none when `wait_s` seconds passed."""
        require_positive("count", count)
        require_at_most("count", count, LARGEST_BATCH)
        require_not_negative("wait_s", wait_s)
        with self._errors():
            reply = await self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=count,
                WaitTimeSeconds=min(math.ceil(wait_s), LONGEST_WAIT_S),
                VisibilityTimeout=math.ceil(self.visibility.total_seconds()),
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        return [_received(message) for message in reply.get("Messages", ())]

    async def send(self, bodies: Mapping[str, str]) -> Unsent | None:
        """Send messages by name; returns those that may not have been sent, or None."""
        results = await self._in_batches(self._send_some, list(bodies.items()))
        failed = [result for result in results if result is not None]
        if not failed:
            return None
        return Unsent([name for unsent in failed for name in unsent.names], failed[0].error)

    async def delete(self, receipts: Sequence[str]) -> None:
        """Delete messages. One that cannot be deleted is delivered again, which receivers must tolerate."""
        await self._in_batches(self._delete_some, receipts)

    async def hide(self, receipts: Sequence[str]) -> None:
        """Hide messages for the visibility timeout again; those for which it fails may be delivered again."""
        await self._in_batches(self._hide_some, receipts)

    async def _send_some(self, messages: Sequence[tuple[str, str]]) -> Unsent | None:
        entries = [{"Id": str(n), "MessageBody": body} for n, (_, body) in enumerate(messages)]
        try:
            with self._errors():
                reply = await self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        except Unavailable as error:
            # It is unknown how many arrived. All count as unsent, because a second ticket for a message is void.
            return Unsent([name for name, _ in messages], error)
        if not (failed := reply.get("Failed")):
            return None
        return Unsent([messages[int(entry["Id"])][0] for entry in failed], self._failure(failed[0]))

    async def _delete_some(self, receipts: Sequence[str]) -> None:
        entries = [{"Id": str(n), "ReceiptHandle": receipt} for n, receipt in enumerate(receipts)]
        await self._try_to("delete", self._client.delete_message_batch(QueueUrl=self._url, Entries=entries))

    async def _hide_some(self, receipts: Sequence[str]) -> None:
        hidden_s = math.ceil(self.visibility.total_seconds())
        entries = [
            {"Id": str(n), "ReceiptHandle": receipt, "VisibilityTimeout": hidden_s}
            for n, receipt in enumerate(receipts)
        ]
        await self._try_to("hide", self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries))

    async def _try_to(self, what: str, request: Any) -> None:
        """Send a request that is not repeated; if it fails, its messages are delivered again."""
        try:
            with self._errors():
                failed = (await request).get("Failed") or []
        except Unavailable as error:
            self._outages[what].note(error)
            return
        self._outages[what].over()
        if failed:
            log.warning("sqs.request_failed", what=what, error=str(self._failure(failed[0])))

    async def _in_batches(self, work: Any, items: Sequence[T]) -> list[Any]:
        room = asyncio.Semaphore(_CONCURRENCY)

        async def one(batch: Sequence[T]) -> Any:
            async with room:
                return await work(batch)

        return await asyncio.gather(*(one(batch) for batch in _batches(items)))

    def _failure(self, entry: Mapping[str, Any]) -> Unavailable:
        failure = fit_to_keep(f"{entry.get('Code')}: {entry.get('Message', '')}", most=_LONGEST_REASON)
        if entry.get("SenderFault"):
            return ServerRefused(self._server, failure, remedy=_REMEDY)
        return QueueUnavailable(f"{self._server}: {failure}", server=self._server)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Map errors of the SDK to `QueueUnavailable` and `ServerRefused`."""
        try:
            yield
        except exceptions.ClientError as error:
            failure: dict[str, Any] = dict(error.response.get("Error", {}))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            # Errors of the service and requests to slow down pass. Everything else needs an operator.
            failure["SenderFault"] = status < 500 and failure.get("Code") not in _TRANSIENT_CODES
            raise self._failure(failure) from None
        except _UNAVAILABLE_ERRORS as error:
            raise QueueUnavailable(f"{self._server}: {error}", server=self._server) from None
        except exceptions.BotoCoreError as error:
            raise ServerRefused(self._server, str(error), remedy=_REMEDY) from None


def _received(message: Mapping[str, Any]) -> Received:
    receives = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return Received(message["MessageId"], message["Body"], message["ReceiptHandle"], receives)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), LARGEST_BATCH):
        yield items[start : start + LARGEST_BATCH]
