"""Links, the service that checks them, and what both contribute to a process."""

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
from sqlalchemy import insert, select, update

from link_checker.metrics import LINKS_CHECKED
from link_checker.settings import LinkCheckerSettings
from link_checker.tables import links
from tidegate import Api, Context, Database, OpenSystem, Service, Topic, Transaction
from tidegate.http import RequestInput, route
from tidegate.primitives.wakeup import Wakeup
from tidegate.system import HttpContext

MOST_LISTED = 100
_PAUSE_S = 60.0
"""Links are looked for after this long even without a wake-up."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link, and how it answered."""

    url: str
    status: int | None
    """Status of the last answer; null: not checked yet; 0: no answer."""


class LinkList(msgspec.Struct, frozen=True, kw_only=True):
    """Links by URL."""

    links: list[Link]


class NewLink(RequestInput, frozen=True, kw_only=True):
    """A link to check."""

    url: str


def listed(tx: Transaction) -> list[Link]:
    """The first links by URL."""
    rows = tx.execute(select(links.c.url, links.c.status).order_by(links.c.url).limit(MOST_LISTED))
    return [Link(url=row.url, status=row.status) for row in rows]


def add(tx: Transaction, url: str) -> None:
    """Have a link checked, also one that is known."""
    found = tx.execute(update(links).where(links.c.url == url).values(status=None))
    if not found.rowcount:
        tx.execute(insert(links).values(url=url))


def wake_up(context: Context) -> Wakeup:
    """Wakes the checker of some process."""
    return Wakeup(context.valkey, context.valkey.unit("link-checker").key("wake"))


class LinkService:
    """Checks links that were added. A service of worker processes; a link may be checked twice, which is harmless."""

    def __init__(self, database: Database, wakeup: Wakeup, settings: LinkCheckerSettings) -> None:
        self._database, self._wakeup, self._settings = database, wakeup, settings

    async def run(self, stopping: asyncio.Event) -> None:
        """Until the process stops."""
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout.total_seconds())
        stop = asyncio.create_task(stopping.wait())
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while not stopping.is_set():
                for link in [each for each in await self._database.read(listed) if each.status is None]:
                    status = await _status_of(session, link.url)
                    LINKS_CHECKED.labels("answered" if status else "failed").inc()
                    await self._database.transaction(_record, link.url, status)
                woken = asyncio.create_task(self._wakeup.wait(_PAUSE_S))
                await asyncio.wait([woken, stop], return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        stop.cancel()


async def _status_of(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.head(url) as answer:
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return 0


def _record(tx: Transaction, url: str, status: int) -> None:
    tx.execute(update(links).where(links.c.url == url).values(status=status))


class OpenLinkChecker(OpenSystem):
    """What the link checker contributes to a process."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def workers(self) -> Mapping[str, Service]:
        """The service that checks."""
        context = self._context
        return {"links": LinkService(context.database, wake_up(context), context.section(LinkCheckerSettings))}

    def api(self, http: HttpContext) -> Api:
        """`/v1/links`."""
        del http
        return Api(
            routes=[
                route("GET", "/v1/links", self.list_links, "links"),
                route("POST", "/v1/links", self.add_link, "links", status=202),
            ]
        )

    def topics(self) -> Sequence[Topic]:
        """`/v1/links`, live."""
        return [Topic("links", self.list_links)]

    async def list_links(self) -> LinkList:
        """List links, and how they answered."""
        return LinkList(links=await self._context.database.read(listed))

    async def add_link(self, body: NewLink) -> Link:
        """Have a link checked."""
        await self._context.database.transaction(add, body.url)
        await wake_up(self._context).notify()
        return Link(url=body.url, status=None)
