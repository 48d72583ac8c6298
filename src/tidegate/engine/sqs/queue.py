"""One queue on SQS: typed, in batches, and with errors that say whether waiting helps."""

import asyncio
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import aiohttp
from botocore import exceptions as told
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
"""What SQS allows."""
_AT_ONCE = 8
"""Requests of one call that are under way together."""
_PASSING = frozenset(
    {"OverLimit", "RequestThrottled", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)
_AWAY = (
    *(told.ConnectionError, told.HTTPClientError, told.CredentialRetrievalError, told.MetadataRetrievalError),
    *(ResponseParserError, aiohttp.ClientError, OSError),
)
_LONGEST_REASON = 300
_REMEDY = "Look at the address of the queue, the region, and what our role may do"


class QueueUnavailable(Unavailable):
    """SQS did not answer, or asked for a pause."""


class Received(NamedTuple):
    """A message that is hidden from others for a while."""

    id: str
    """The same however often it is received."""
    body: str
    receipt: str
    receives: int
    """How often it was received, this time included."""


class Unsent(NamedTuple):
    """What could not be sent, and why."""

    names: list[str]
    error: Unavailable


class Queue:
    """A queue on SQS. Every method may be called by many at once."""

    def __init__(self, client: Any, url: str, *, visibility: timedelta) -> None:
        self._client, self._url, self._server = client, url, f"SQS ({url.rpartition('/')[2]})"
        self.visibility = visibility
        self._outages = {what: Outage(f"sqs.{what}") for what in ("delete", "hide")}

    async def check(self) -> None:
        """See that the queue is there and lets us in. Raises `QueueUnavailable` or `ServerRefused`."""
        with self._errors():
            await self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])

    async def receive(self, count: int, wait_s: float) -> list[Received]:
        """At most `count` (at most 10) messages, as soon as there are some; none when `wait_s` seconds passed."""
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
        """Send messages, each of which has a name here; tells which of them may not have been sent."""
        results = await self._in_batches(self._send_some, list(bodies.items()))
        failed = [result for result in results if result is not None]
        if not failed:
            return None
        return Unsent([name for unsent in failed for name in unsent.names], failed[0].error)

    async def delete(self, receipts: Sequence[str]) -> None:
        """Have them shown to nobody any more. What cannot be deleted is shown again, which every receiver must bear."""
        await self._in_batches(self._delete_some, receipts)

    async def hide(self, receipts: Sequence[str]) -> None:
        """Hide these for as long again; those for which that fails may be shown to another."""
        await self._in_batches(self._hide_some, receipts)

    async def _send_some(self, messages: Sequence[tuple[str, str]]) -> Unsent | None:
        entries = [{"Id": str(n), "MessageBody": body} for n, (_, body) in enumerate(messages)]
        try:
            with self._errors():
                reply = await self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        except Unavailable as error:
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
        """Send a request that is not repeated: a message that it was about is shown again."""
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
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(batch: Sequence[T]) -> Any:
            async with room:
                return await work(batch)

        return await asyncio.gather(*(one(batch) for batch in _batches(items)))

    def _failure(self, entry: Mapping[str, Any]) -> Unavailable:
        said = fit_to_keep(f"{entry.get('Code')}: {entry.get('Message', '')}", most=_LONGEST_REASON)
        if entry.get("SenderFault"):
            return ServerRefused(self._server, said, remedy=_REMEDY)
        return QueueUnavailable(f"{self._server}: {said}", server=self._server)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Say in our own words what went wrong."""
        try:
            yield
        except told.ClientError as error:
            said: dict[str, Any] = dict(error.response.get("Error", {}))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            said["SenderFault"] = status < 500 and said.get("Code") not in _PASSING
            raise self._failure(said) from None
        except _AWAY as error:
            raise QueueUnavailable(f"{self._server}: {error}", server=self._server) from None
        except told.BotoCoreError as error:
            raise ServerRefused(self._server, str(error), remedy=_REMEDY) from None


def _received(message: Mapping[str, Any]) -> Received:
    receives = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return Received(message["MessageId"], message["Body"], message["ReceiptHandle"], receives)


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), LARGEST_BATCH):
        yield items[start : start + LARGEST_BATCH]
