"""`/v1/campaigns/{campaign}/entries`: enter, and what came of it."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta

from tidegate.core.errors import TooManyWaiting
from tidegate.http.asgi import HttpRequest, HttpResponse
from tidegate.http.dispatch import Given
from tidegate.http.events import ENDED, HEARTBEAT_S, WatchedEvents
from tidegate.http.events import MEDIA_TYPE as EVENTS
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.routes import Also, route
from tidegate.http.settings import HttpSettings
from tidegate.runtime.change_feed import Watch
from tidegate.systems.campaigns.api.campaigns import TAG, CampaignId, Limit
from tidegate.systems.campaigns.model import DecidedEntry as Decided
from tidegate.systems.campaigns.model import EntryAnswer
from tidegate.systems.campaigns.model import EntryReceipt as Entered
from tidegate.systems.campaigns.model import EntryResult as Result
from tidegate.systems.campaigns.service import Campaigns
from tidegate.systems.campaigns.tables import LONGEST_KEY, LONGEST_USER

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


class NewEntry(Given, frozen=True, kw_only=True):
    """Who enters."""

    user: User
    key: Key | None = None
    """The idempotency key; the same as the header `Idempotency-Key`."""
    data: Any = None
    """What the processor of the campaign's kind is to know: at most 4 kB of JSON."""


class EntryFilter(Given, frozen=True, kw_only=True):
    """Which entries, and how many."""

    after_number: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    """Only entries behind this number."""
    after_user: User | None = None
    """And, among those of the same number, behind this user."""
    limit: Limit = 100


class DecidedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an entry."""

    user: str
    number: int
    outcome: str
    code: str | None
    points: int
    reason: str | None
    decided_at: datetime


class EntryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries that are decided, by number."""

    entries: list[DecidedEntry]
    next: str | None
    """The address of the next page; null where there is none."""


class EntryRoutes:
    """The handlers."""

    def __init__(self, campaigns: Campaigns, settings: HttpSettings) -> None:
        self._campaigns = campaigns
        self._most_listeners, self._listeners = settings.most_listeners, 0
        self._closing = asyncio.Event()

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with entries."""
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
                    200: Also("DUPLICATE: this user has entered before, with another key or without one.", Entered),
                    409: Also(
                        "SOLD_OUT, or NOT_OPEN: with `Retry-After` and `opens_in_ms` where the start is known.", Entered
                    ),
                },
                problems=(ProblemType.TOO_MANY,),
                is_chatter=True,
                headers={"Location": "Where the result is told."},
                sent={KEY_HEADER: "The same key again is answered alike, and enters once."},
            ),
            route("GET", f"{place}/entries", self.list_entries, TAG),
            route(
                "GET",
                f"{entry}/events",
                self.follow_entry,
                TAG,
                media_types=(EVENTS,),
                also={204: Also("The client has seen the last event, and need not ask again.")},
                event=Result,
                event_name="result",
            ),
            route("GET", entry, self.show_entry, TAG, is_chatter=True),
        ]

    def close(self) -> None:
        """Send everybody home who listens."""
        self._closing.set()

    async def enter_campaign(self, campaign: CampaignId, body: NewEntry, request: HttpRequest) -> Response[Entered]:
        """Enter a user, who is told at once: ACCEPTED with a number, DUPLICATE, SOLD_OUT or NOT_OPEN.

        ACCEPTED means in line; what comes of it is told at `Location`. The same user with the same idempotency key is
        ACCEPTED again under the same number; without a key, a second time is a DUPLICATE. Where too many are in line,
        it is refused with 503 and `Retry-After`: nothing was done, so ask again.
        """
        entered = await self._campaigns.enter(campaign, body.user, _key_of(body, request), body.data)
        if entered.answer is EntryAnswer.BUSY:
            raise Trouble(ProblemType.TOO_MANY, "too many entries are in line", headers={"Retry-After": _BUSY_S})
        return Response(entered, headers=headers_of(campaign, body.user, entered), status_code=STATUS[entered.answer])

    async def list_entries(self, campaign: CampaignId, query: EntryFilter) -> EntryPage:
        """List entries that are decided, by number."""
        after = None
        if query.after_number is not None:
            # Nobody's id is empty: before everybody who has the next number.
            after = (query.after_number + 1, "") if query.after_user is None else (query.after_number, query.after_user)
        found = await self._campaigns.entries(campaign, after=after, limit=query.limit)
        link = None
        if len(found) == query.limit:
            last = {"after_number": found[-1].number, "after_user": found[-1].user, "limit": query.limit}
            link = f"/v1/campaigns/{campaign}/entries?{urlencode(last)}"
        return EntryPage(entries=[_told(one) for one in found], next=link)

    async def show_entry(self, campaign: CampaignId, user: User) -> Result:
        """Tell what became of a user's entry: pending, issued, refused, sold_out, failed, or unknown."""
        return await self._campaigns.result(campaign, user)

    async def follow_entry(self, campaign: CampaignId, user: User, request: HttpRequest) -> HttpResponse:
        """Tell how far a user's entry is, and again when that changes, as server-sent events until it is decided."""
        if request.headers.get("last-event-id") == ENDED:
            return Response(b"", status_code=204)
        if self._listeners >= self._most_listeners:
            raise TooManyWaiting("events", most=self._most_listeners)
        await self._campaigns.result(campaign, user)  # or there is nothing of this name
        return EntryEvents(self._campaigns, (campaign, user), self._closing, self._count)

    def _count(self, change: int) -> None:
        self._listeners += change


def _key_of(body: NewEntry, request: HttpRequest) -> str | None:
    """From the header or the body; both may be given if they agree."""
    sent = request.headers.get(KEY_HEADER)
    if sent is not None and body.key is not None and sent != body.key:
        raise Trouble(ProblemType.INVALID, f"key: it is not that of the header {KEY_HEADER}", field="key")
    return body.key if sent is None else sent


def headers_of(campaign: str, user: str, entered: Entered) -> dict[str, str]:
    """Where the result is told, and when to come back."""
    headers = {"Location": f"/v1/campaigns/{campaign}/entries/{quote(user)}"}
    if entered.opens_in_ms is not None:
        headers["Retry-After"] = str(math.ceil(entered.opens_in_ms / 1000))
    return headers


def _told(one: Decided) -> DecidedEntry:
    return DecidedEntry(
        user=one.user,
        number=one.number,
        outcome=one.outcome.verdict.value,
        code=one.outcome.code,
        points=one.outcome.points,
        reason=one.outcome.reason,
        decided_at=one.decided_at,
    )


class EntryEvents(WatchedEvents):
    """The answer; it lasts until the entry is decided, the client leaves, or `closing` is set."""

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

    async def look(self) -> bytes | None:
        """See `WatchedEvents`."""
        result = await self._campaigns.result(*self._place)
        if result == self._shown:
            return None
        self._shown, self.is_over = result, result.is_final
        return _event(result)


def _event(result: Result) -> bytes:
    name = ENDED.encode() if result.is_final else result.state.value.encode()
    return b"id: %b\nevent: result\ndata: %b\n\n" % (name, msgspec.json.encode(result))
