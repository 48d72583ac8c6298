"""Calls hosts politely: fetches nothing that robots.txt forbids, and nothing before robots.txt was read.

robots.txt can forbid a path to one User-Agent and allow it to another. A job that is enqueued names the identities that
are excluded from it, by the rules that this process last knew (`Eligibility`). If it knows none, or outdated ones, the
caller reads robots.txt and gives the job back (`PoliteCaller`). Both use the same rules, so a returned job is not
assigned to the same identity again. Only a page that no identity may fetch is withheld.

robots.txt is read with the permit of the call that needed it, and that call waits for another permit, because a permit
is one call. The gate decides how fast a host is called; what it needs to know is passed to it here, before the permit
is settled.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NoReturn, Protocol
from urllib.parse import urljoin, urlsplit
from weakref import WeakValueDictionary

from tidegate.core.clock import milliseconds
from tidegate.core.errors import DatabaseUnavailable, ValkeyUnavailable
from tidegate.engine.calls import NotCalled, UpstreamCalls
from tidegate.engine.job_store import StoredJob
from tidegate.engine.source import JobSpec, Verdict
from tidegate.engine.upstream import AddressRefused, Answer, Permit, Request, UpstreamFailed
from tidegate.engine.upstream.messages import shown
from tidegate.systems.crawl.host_registry import POOL, HostRegistry
from tidegate.systems.crawl.hosts import Host, host_of
from tidegate.systems.crawl.identities import IdentityRegistry
from tidegate.systems.crawl.robots import PATH, RobotsAnswer, RobotsState


class AddressedJobs(Protocol):
    """A source that knows the URL of each of its jobs."""

    def robots_url(self, spec: JobSpec) -> str | None:
        """The URL that a job calls; None if robots.txt does not apply."""
        ...


class Eligibility:
    """Computes the identities that must not make the call of a job."""

    def __init__(self, source: AddressedJobs, identities: IdentityRegistry) -> None:
        self._source, self._identities = source, identities

    def excluded(self, job: StoredJob) -> Sequence[str]:
        """The identities for which robots.txt forbids the page of a job; none if it forbids it to all of them."""
        if job.pool != POOL:
            return ()
        known, agents = self._identities.hosts.last_known(job.spec.bucket), self._identities.agents
        names = set(agents.values())
        # In most cases the rules treat all identities alike, and no URL has to be built.
        if known is None or known.rules is None or not known.rules.tells_apart(names):
            return ()
        url = self._source.robots_url(job.spec)
        forbidden = frozenset[str]() if url is None else known.forbidden(url, names)
        # Forbidden to all: the job must reach a caller, which withholds the page with the reason.
        if len(forbidden) == len(names):
            return ()
        return [credential for credential, agent in agents.items() if agent in forbidden]


_CONDITIONS = frozenset({"if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "range", "if-range"})
"""Headers that apply to the requested page and not to robots.txt."""
_DETOUR = timedelta(seconds=1)
"""Delay before a job is enqueued again that its identity may not fetch, for processes that do not know the rules."""


class PoliteRequest(Request, frozen=True, kw_only=True):
    """One call to a crawled host. Its headers belong to an identity and are not shown."""

    public_only: bool = True
    ignores_robots: bool = False
    """Whether robots.txt is ignored; only if this crawl was started with that option."""

    def __repr__(self) -> str:
        return f"PoliteRequest({self.method} {shown(self.url)}, {self.purpose}, {len(self.headers)} headers)"


class PoliteCaller:
    """Makes the calls of a crawl, or raises `NotCalled` with the reason."""

    def __init__(self, client: UpstreamCalls, hosts: HostRegistry) -> None:
        self._client, self._hosts = client, hosts
        self._reading_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        """Make the call; raises `NotCalled` if robots.txt forbids it or has to be read first.

        If the host refused robots.txt to this identity, returns that answer, because it applies to the call too.
        """
        host = host_of(request.url)
        if isinstance(request, PoliteRequest) and request.ignores_robots:
            await self._require_registered(host)
        else:
            refused = await self._ask_robots(host, request, permit)
            if refused is not None:
                return refused
        try:
            return await self._client.fetch(request, permit)
        except AddressRefused as failure:
            raise _not_public(failure) from None
        except UpstreamFailed as failure:
            if failure.was_sent is False:  # even a failed connection counts as a call, or the next would follow at once
                failure.was_sent = None
            raise

    async def _require_registered(self, host: str) -> None:
        """The gate knows no pace for an unregistered host, so this permit may be one of many: register it first."""
        async with _retry_later_if_unavailable(calls=0):
            if await self._hosts.is_registered(host):
                return
            await self._hosts.register(host)
        delay_ms = milliseconds(self._hosts.settings.delay)
        raise NotCalled(Verdict.LATER, "the host was not known yet", delay_ms=delay_ms)

    async def _ask_robots(self, host: str, request: Request, permit: Permit | None) -> Answer | None:
        """Return None if robots.txt allows the call, or the host's refusal to show it."""
        # Nearly every call ends here: rules in memory, no lock and no query.
        known = self._hosts.cached(host)
        if known is None:
            lock = self._reading_locks.setdefault(host, asyncio.Lock())
            async with lock:  # one of several concurrent calls reads it for all
                async with _retry_later_if_unavailable(calls=0):
                    known = await self._hosts.known(host)
                if known is None:
                    await self._require_registered(host)
                    return await self._read_robots(host, request, permit)
        if not known.allows(request.url, agent := _user_agent(request)):
            async with _retry_later_if_unavailable(calls=0):
                agents = await self._hosts.user_agents()
            forbidden = known.forbidden(request.url, agents)
            # Another identity may fetch the page: give the job back, so that the gate assigns it to that one.
            if agent in forbidden and len(forbidden) < len(agents):
                raise NotCalled(
                    Verdict.LATER,
                    f"robots.txt of {host} forbids {_path(request.url)} to this identity, and not to others",
                    delay_ms=milliseconds(_DETOUR),
                )
            # Otherwise the page is withheld, without another attempt.
            why = f" ({known.reason})" if known.state is RobotsState.ELSEWHERE else ""
            raise NotCalled(Verdict.UNAVAILABLE, f"robots.txt of {host} forbids {_path(request.url)}{why}")
        return None

    async def _read_robots(self, name: str, request: Request, permit: Permit | None) -> Answer:
        """Request robots.txt in place of the call. Raises `NotCalled`, unless its answer counts as that of the call."""
        async with _retry_later_if_unavailable(calls=0):
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
            # The request was sent before this failure, so one call is counted.
            async with _retry_later_if_unavailable(calls=1):
                found = await self._hosts.apply_answer(host, answer)
            # The refusal counts against this identity, like that of a page.
            if found is RobotsAnswer.REFUSED:
                return answer
            if found is not RobotsAnswer.UNREADABLE:
                raise NotCalled(Verdict.LATER, f"robots.txt of {name} was read first", delay_ms=0, calls=1)
            return await self._give_up(host, f"answered {answer.status}", 1, answer)
        return await self._give_up(host, reason, calls)

    async def _give_up(self, host: Host, reason: str, calls: int, answer: Answer | None = None) -> NoReturn:
        """Block the host for a while, because robots.txt could not be read."""
        async with _retry_later_if_unavailable(calls=calls):
            pause = await self._hosts.record_unreadable(host, reason, answer)
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
async def _retry_later_if_unavailable(*, calls: int) -> AsyncGenerator[None]:
    """Give the job back while a server of this deployment is unavailable."""
    try:
        yield
    except (DatabaseUnavailable, ValkeyUnavailable) as error:
        raise NotCalled(Verdict.LATER, str(error), delay_ms=milliseconds(timedelta(seconds=5)), calls=calls) from None


def _user_agent(request: Request) -> str:
    return next((value for name, value in request.headers.items() if name.lower() == "user-agent"), "")


def _path(url: str) -> str:
    parts = urlsplit(url)
    return shown(parts.path + (f"?{parts.query}" if parts.query else ""))
