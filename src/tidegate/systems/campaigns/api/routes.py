"""All routes of campaigns, among them `/v1/campaigns/{campaign}/entries`: enter a campaign, and read results.

Entries have a raw handler too (see `tidegate.http.raw_handlers`). Concurrent entries are sent to the server together. A
request that leads to a problem is passed to the application.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import TidegateError, TooManyWaiting
from tidegate.core.telemetry import metrics
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.dispatch import RequestInput
from tidegate.http.events import ENDED, HEARTBEAT_S, WatchedEvents
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.raw_handlers import (
    Admission,
    AdmittedRequest,
    Application,
    Message,
    Receive,
    Responder,
    Scope,
    Send,
    has_small_json,
    lines_of,
    received_first,
)
from tidegate.http.routes import FurtherAnswer, route
from tidegate.http.settings import HttpSettings
from tidegate.runtime.change_feed import Watch
from tidegate.system import Api, HttpContext
from tidegate.systems.campaigns.api.campaigns import TAG, CampaignId, CampaignRoutes, DeadEntryRoutes, Limit
from tidegate.systems.campaigns.campaign_store import LONGEST_KEY, LONGEST_USER
from tidegate.systems.campaigns.model import DecidedEntry, EntryAnswer
from tidegate.systems.campaigns.model import EntryAnswer as Answer
from tidegate.systems.campaigns.model import EntryReceipt as Entered
from tidegate.systems.campaigns.model import EntryResult as Result
from tidegate.systems.campaigns.service import Campaigns

KEY_HEADER = "Idempotency-Key"
_BUSY_S = "1"

User = Annotated[str, Meta(min_length=1, max_length=LONGEST_USER, extra_json_schema={"format": "user-name"})]
Key = Annotated[str, Meta(min_length=1, max_length=LONGEST_KEY, extra_json_schema={"format": "user-name"})]
STATUS = {
    EntryAnswer.ACCEPTED: 202,
    EntryAnswer.DUPLICATE: 200,
    EntryAnswer.SOLD_OUT: 409,
    EntryAnswer.NOT_OPEN: 409,
}


class NewEntry(RequestInput, frozen=True, kw_only=True):
    """A request to enter a campaign."""

    user: User
    key: Key | None = None
    """The idempotency key; alternatively sent as header `Idempotency-Key`."""
    data: Any = None
    """Data for the processor of the campaign's kind: at most 4 kB of JSON."""


class EntryFilter(RequestInput, frozen=True, kw_only=True):
    """Filter and page size of the list."""

    after_number: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """Only entries after this number."""
    after_user: User | None = None
    """With `after_number`: only entries after this number and user."""
    limit: Limit = 100


class DecidedEntryView(msgspec.Struct, frozen=True, kw_only=True):
    """A decided entry, as it is listed."""

    user: str
    number: int
    outcome: str
    code: str | None
    points: int
    reason: str | None
    decided_at: datetime


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of decided entries, by number."""

    entries: list[DecidedEntryView]
    next: str | None
    """The URL of the next page; null on the last one."""


class EntryRoutes:
    """Routes that enter campaigns and read results."""

    def __init__(self, campaigns: Campaigns, settings: HttpSettings) -> None:
        self._campaigns = campaigns
        self._most_listeners, self._listeners = settings.most_listeners, 0
        self._closing = asyncio.Event()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of entries."""
        place = "/v1/campaigns/{campaign}"
        entry = f"{place}/entries/{{user:path}}"
        return [
            route(
                "POST",
                f"{place}/entries",
                self.enter_campaign,
                TAG,
                status=202,
                also={
                    200: FurtherAnswer(
                        "DUPLICATE: this user has entered before, with another key or without one.", Entered
                    ),
                    409: FurtherAnswer(
                        "SOLD_OUT, or NOT_OPEN: with `Retry-After` and `opens_in_ms` where the start is known.", Entered
                    ),
                },
                problems=(ProblemType.TOO_MANY,),
                is_high_volume=True,
                headers={"Location": "The URL of the result."},
                sent={KEY_HEADER: "Repeating a key returns the same answer and enters once."},
            ),
            route("GET", f"{place}/entries", self.list_entries, TAG),
            route(
                "GET",
                f"{entry}/events",
                self.follow_entry,
                TAG,
                media_types=(EVENTS,),
                also={204: FurtherAnswer("The client has received the last event and need not reconnect.")},
                event=Result,
                event_name="result",
            ),
            route("GET", entry, self.show_entry, TAG, is_high_volume=True),
        ]

    def close(self) -> None:
        """End all event streams."""
        self._closing.set()

    async def enter_campaign(self, campaign: CampaignId, body: NewEntry, request: HttpRequest) -> Response[Entered]:
        """Enter a user; the answer is ACCEPTED with a number, DUPLICATE, SOLD_OUT or NOT_OPEN.

        ACCEPTED means waiting for a decision; the result is at `Location`. Repeating a request with the same
        idempotency key is ACCEPTED again with the same number; without a key, it is a DUPLICATE. If too many entries
        wait, the response is 503 with `Retry-After`: nothing was done, so repeat the request.
        """
        entered = await self._campaigns.enter(campaign, body.user, _key_of(body, request), body.data)
        if entered.answer is EntryAnswer.BUSY:
            raise RequestFailed(ProblemType.TOO_MANY, "too many entries are in line", headers={"Retry-After": _BUSY_S})
        return Response(entered, headers=headers_of(campaign, body.user, entered), status_code=STATUS[entered.answer])

    async def list_entries(self, campaign: CampaignId, query: EntryFilter) -> EntryPage:
        """List decided entries, by number."""
        after = None
        if query.after_number is not None:
            # User ids are not empty, so this is before all users with the next number.
            after = (query.after_number + 1, "") if query.after_user is None else (query.after_number, query.after_user)
        found = await self._campaigns.entries(campaign, after=after, limit=query.limit)
        link = None
        if len(found) == query.limit:
            last = {"after_number": found[-1].number, "after_user": found[-1].user, "limit": query.limit}
            link = f"/v1/campaigns/{campaign}/entries?{urlencode(last)}"
        return EntryPage(entries=[_decided_view(one) for one in found], next=link)

    async def show_entry(self, campaign: CampaignId, user: User) -> Result:
        """Show the result of a user's entry: pending, issued, refused, sold_out, failed, or unknown."""
        return await self._campaigns.result(campaign, user)

    async def follow_entry(self, campaign: CampaignId, user: User, request: HttpRequest) -> HttpResponse:
        """Send the state of a user's entry, and each change, as server-sent events until it is decided."""
        # A browser reconnects after every end of a stream; 204 stops it.
        if request.headers.get("last-event-id") == ENDED:
            return Response(b"", status_code=204)
        if self._listeners >= self._most_listeners:
            raise TooManyWaiting("events", most=self._most_listeners)
        await self._campaigns.result(campaign, user)  # raises if the campaign does not exist
        return EntryEvents(self._campaigns, (campaign, user), self._closing, self._count)

    def _count(self, change: int) -> None:
        self._listeners += change


def _key_of(body: NewEntry, request: HttpRequest) -> str | None:
    """The idempotency key from the header or the body; if both are sent, they must agree."""
    sent = request.headers.get(KEY_HEADER)
    if sent is not None and body.key is not None and sent != body.key:
        raise RequestFailed(ProblemType.INVALID, f"key: it differs from the header {KEY_HEADER}", field="key")
    return body.key if sent is None else sent


def headers_of(campaign: str, user: str, entered: Entered) -> dict[str, str]:
    """Response headers: the URL of the result, and when to retry."""
    headers = {"Location": f"/v1/campaigns/{campaign}/entries/{quote(user)}"}
    if entered.opens_in_ms is not None:
        headers["Retry-After"] = str(math.ceil(entered.opens_in_ms / 1000))
    return headers


def _decided_view(one: DecidedEntry) -> DecidedEntryView:
    return DecidedEntryView(
        user=one.user,
        number=one.number,
        outcome=one.outcome.verdict.value,
        code=one.outcome.code,
        points=one.outcome.points,
        reason=one.outcome.reason,
        decided_at=one.decided_at,
    )


class EntryEvents(WatchedEvents):
    """The event response of one entry; ends when it is decided, the client disconnects, or `closing` is set."""

    def __init__(
        self,
        campaigns: Campaigns,
        place: tuple[str, str],
        closing: asyncio.Event,
        count: Callable[[int], None],
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(closing, count, heartbeat_s=heartbeat_s)
        self._campaigns, self._place = campaigns, place
        self._shown: Result | None = None

    def watch(self) -> AbstractAsyncContextManager[Watch]:
        """See `WatchedEvents`."""
        return self._campaigns.watch(*self._place)

    async def next_event(self) -> bytes | None:
        """See `WatchedEvents`."""
        result = await self._campaigns.result(*self._place)
        if result == self._shown:
            return None
        self._shown, self.is_over = result, result.is_final
        return _event(result)


def _event(result: Result) -> bytes:
    name = ENDED.encode() if result.is_final else result.state.value.encode()
    return b"id: %b\nevent: result\ndata: %b\n\n" % (name, msgspec.json.encode(result))


PREFIX = "/v1/campaigns/"
ROUTE = "/v1/campaigns/{campaign}/entries"
_END = "/entries"
_LONGEST_BODY = 8 * 1024
_HEADERS = b"content-type: application/json\r\ncache-control: no-store\r\n"
_KEY = KEY_HEADER.lower().encode()
VARYING = frozenset({b"content-length", _KEY})
"""Headers that differ between requests."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(NewEntry).decode


class EntryAttempt(NamedTuple):
    """An entry as it was requested."""

    campaign: str
    user: str
    key: str | None
    data: Any


class FastEntry:
    """The raw handler of entries."""

    def __init__(
        self, application: Application, campaigns: Campaigns, admission: Admission, *, largest_body: int
    ) -> None:
        self._application, self._campaigns, self._admission = application, campaigns, admission
        self._largest = min(largest_body, _LONGEST_BODY)
        self._respond = Responder()
        self._counts = {status: metrics.HTTP_REQUESTS.labels(ROUTE, "POST", str(status)) for status in (200, 202, 409)}
        self._seconds = metrics.HTTP_REQUEST_SECONDS.labels(ROUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an entry, or pass the request on to the application."""
        began = time.monotonic()
        admitted, headers = self._admitted(scope)
        if admitted is None:
            await self._application(scope, receive, send)
            return
        message = await receive()
        attempt = self.read(scope, headers, message)
        entered = None if attempt is None else await self._enter(attempt)
        # The body is consumed already, so the application receives the message again, before the rest.
        if attempt is None or entered is None or entered.answer is Answer.BUSY:
            await self._application(scope, received_first(message, receive), send)
            return
        status = STATUS[entered.answer]
        self._counts[status].inc()
        self._seconds.observe(time.monotonic() - began)
        headers_sent = headers_of(attempt.campaign, attempt.user, entered).items()
        lines = lines_of((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers_sent)
        body = msgspec.json.encode(entered)
        await self._respond(scope, send, status, lines + _HEADERS, body, is_secure=admitted.is_secure)

    def _admitted(self, scope: Scope) -> tuple[AdmittedRequest | None, Mapping[bytes, bytes]]:
        """Whether the raw handler can answer, and all headers."""
        if scope["method"] != "POST" or scope["query_string"] or not scope["path"].endswith(_END):
            return None, {}
        headers = dict(scope["headers"])
        # A repeated header is ambiguous: the application decides what it means.
        if len(headers) != len(scope["headers"]) or not has_small_json(headers, self._largest):
            return None, headers
        return self._admission(scope), headers

    def read(self, scope: Scope, headers: Mapping[bytes, bytes], message: Message) -> EntryAttempt | None:
        """The entry of a request with its body in `message`; None if the application has to answer."""
        campaign = scope["path"][len(PREFIX) : -len(_END)]
        if message.get("more_body", False) or not campaign or "/" in campaign:
            return None
        try:
            entry, sent = _decode(message.get("body", b"")), headers.get(_KEY)
            key = entry.key if sent is None else sent.decode("latin-1")
        except _UNREADABLE:
            return None
        # Header and body disagree: the application reports the problem.
        if entry.key is not None and key != entry.key:
            return None
        return EntryAttempt(campaign, entry.user, key, entry.data)

    async def _enter(self, attempt: EntryAttempt) -> Entered | None:
        """The answer of the campaign; None for a problem, which the application reports."""
        try:
            return await self._campaigns.ask(attempt.campaign, attempt.user, attempt.key, attempt.data)
        except (TidegateError, TimeoutError):
            return None


def campaign_api(campaigns: Campaigns, http: HttpContext) -> Api:
    """All routes of campaigns, with the raw handler of entries."""
    entries = EntryRoutes(campaigns, http.settings)
    routes = [CampaignRoutes(campaigns), entries, DeadEntryRoutes(campaigns)]
    admission = Admission(Authenticator(http.access, ()), Role.OPERATE, varying=VARYING)
    largest_body = http.settings.largest_body

    def fast_entry(application: Application) -> FastEntry:
        return FastEntry(application, campaigns, admission, largest_body=largest_body)

    return Api(
        routes=[route for each in routes for route in each.routes()],
        close=entries.close,
        raw={PREFIX: fast_entry},
    )
