"""Whoever calls hosts politely: nothing is called that robots.txt forbids, or before it was read.

A page that robots.txt forbids to one identity and allows to another is fetched by the other: the gate is told when the
job is offered (`Eligibility`); where that was not known yet, the job goes back. Only a page that no identity
may fetch is withheld.

robots.txt is read with the permit of the call that needed it, and that call is made with another one: a permit is one
call, whatever it is for. How fast a host is called is the gate's business; what it has to know for that it is told
here, before the permit ends.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NoReturn
from urllib.parse import urljoin, urlsplit
from weakref import WeakValueDictionary

from tidegate.core.clock import milliseconds
from tidegate.core.errors import DatabaseUnavailable, ValkeyUnavailable
from tidegate.engine.calls import Caller, NotCalled
from tidegate.engine.source import Verdict
from tidegate.engine.upstream import AddressRefused, Answer, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.messages import shown
from tidegate.systems.crawl.host_book import HostBook
from tidegate.systems.crawl.hosts import Host, host_of
from tidegate.systems.crawl.robots import PATH, Found, RobotsState

_CONDITIONS = frozenset({"if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "range", "if-range"})
"""Headers that are about the page that was asked for, and not about robots.txt."""
_DETOUR = timedelta(seconds=1)
"""Before a job is offered again that its identity may not fetch, for processes that do not know the rules yet."""


class PoliteRequest(Request, frozen=True, kw_only=True):
    """One call to a host that is crawled. Nothing is shown of its headers: they are somebody's."""

    public_only: bool = True
    ignores_robots: bool = False
    """Whether robots.txt is not asked; only where somebody typed so for this very crawl."""

    def __repr__(self) -> str:
        return f"PoliteRequest({self.method} {shown(self.url)}, {self.purpose}, {len(self.headers)} headers)"


class PoliteCaller:
    """Makes the calls of a crawl, or says why not."""

    def __init__(self, client: Caller, hosts: HostBook) -> None:
        self._client, self._hosts = client, hosts
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Make the call; raises `NotCalled` where robots.txt forbids it or has to be read first.

        Where the host refused to show its robots.txt to this identity, that answer is returned: it says the same about
        the call.
        """
        host = host_of(request.url)
        if isinstance(request, PoliteRequest) and request.ignores_robots:
            await self._require_met(host)
        else:
            refused = await self._ask_robots(host, request, permit)
            if refused is not None:
                return refused
        try:
            return await self._client.fetch(request, permit)
        except AddressRefused as failure:
            raise _not_public(failure) from None
        except UpstreamFailed as failure:
            if failure.was_sent is False:  # a knock is a call: an unused permit would have the next one knock at once
                failure.was_sent = None
            raise

    async def _require_met(self, host: str) -> None:
        """The gate knows no pace for a host that nobody has met: this permit may be one of many."""
        async with _patience(calls=0):
            if await self._hosts.is_met(host):
                return
            await self._hosts.meet(host)
        delay_ms = milliseconds(self._hosts.settings.delay)
        raise NotCalled(Verdict.LATER, "the host was not known yet", delay_ms=delay_ms)

    async def _ask_robots(self, host: str, request: Request, permit: Permit | None) -> Answer | None:
        """Return if robots.txt allows the call."""
        known = self._hosts.at_hand(host)
        if known is None:
            lock = self._asking.setdefault(host, asyncio.Lock())
            async with lock:  # where calls may be made at once, one reads it for all
                async with _patience(calls=0):
                    known = await self._hosts.known(host)
                if known is None:
                    await self._require_met(host)
                    return await self._read_robots(host, request, permit)
        if not known.allows(request.url, agent := _user_agent(request)):
            async with _patience(calls=0):
                agents = await self._hosts.user_agents()
            forbidden = known.forbidden(request.url, agents)
            if agent in forbidden and len(forbidden) < len(agents):
                raise NotCalled(
                    Verdict.LATER,
                    f"robots.txt of {host} forbids {_path(request.url)} to this identity, and not to others",
                    delay_ms=milliseconds(_DETOUR),
                )
            why = f" ({known.reason})" if known.state is RobotsState.ELSEWHERE else ""
            raise NotCalled(Verdict.UNAVAILABLE, f"robots.txt of {host} forbids {_path(request.url)}{why}")
        return None

    async def _read_robots(self, name: str, request: Request, permit: Permit | None) -> Answer:
        async with _patience(calls=0):
            host = await self._hosts.get(name)
        url = host.robots_url or urljoin(request.url, PATH)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _CONDITIONS}
        asked = PoliteRequest(url=url, purpose="crawl.robots", headers=headers)
        try:
            answer = await self._client.fetch(asked, permit)
        except AddressRefused as failure:
            raise _not_public(failure) from None
        except UpstreamFailed as failure:
            reason, calls = failure.reason, 0 if failure.was_sent is False else 1
        else:
            async with _patience(calls=1):
                found = await self._hosts.learn(host, answer)
            if found is Found.REFUSED:
                return answer
            if found is not Found.UNREADABLE:
                raise NotCalled(Verdict.LATER, f"robots.txt of {name} was read first", delay_ms=0, calls=1)
            return await self._give_up(host, f"answered {answer.status}", 1, answer)
        return await self._give_up(host, reason, calls)

    async def _give_up(self, host: Host, reason: str, calls: int, answer: Answer | None = None) -> NoReturn:
        """Nobody knows what robots.txt says, so nobody calls this host for a while."""
        async with _patience(calls=calls):
            pause = await self._hosts.despair(host, reason, answer)
        raise NotCalled(
            Verdict.LATER,
            f"robots.txt of {host.host} cannot be read: {reason}",
            delay_ms=0,
            pause_ms=max(1, milliseconds(pause)),
            calls=calls,
        )


def _not_public(failure: AddressRefused) -> NotCalled:
    return NotCalled(Verdict.GONE, failure.reason)


@asynccontextmanager
async def _patience(*, calls: int) -> AsyncGenerator[None]:
    """A server of ours that is away is no fault of the job's."""
    try:
        yield
    except (DatabaseUnavailable, ValkeyUnavailable) as error:
        raise NotCalled(Verdict.LATER, str(error), delay_ms=milliseconds(timedelta(seconds=5)), calls=calls) from None


def _user_agent(request: Request) -> str:
    return next((value for name, value in request.headers.items() if name.lower() == "user-agent"), "")


def _path(url: str) -> str:
    parts = urlsplit(url)
    return shown(parts.path + (f"?{parts.query}" if parts.query else ""))
