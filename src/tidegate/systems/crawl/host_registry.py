"""Hosts of crawls: caches what is known about them, and tells the gate how fast each may be called.

The gate is updated first, SQL second. A process that dies in between leaves a gate that is slower than SQL says, never
a faster one, and the next process reads robots.txt again. After writing SQL the gate is updated once more, and SQL is
read again after each update of the gate; so the newer value wins if two processes update at the same time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tidegate.core.clock import milliseconds
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.upstream import Answer
from tidegate.engine.upstream.messages import shown
from tidegate.primitives.gate import Gate
from tidegate.storage.sql import Database
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.hosts import Host, require_host
from tidegate.systems.crawl.robots import RobotsAnswer, RobotsState, Rules, meaning_of, moved_to, text_of
from tidegate.systems.crawl.settings import CrawlSettings

log = get_logger(__name__)

POOL = "crawl"
"""The pool of all identities; each host is a bucket of it."""
_AT_ONCE = 50
_MOST_KEPT = 1000
_TRUST_CACHE_FOR = timedelta(minutes=1)
"""How long cached rules are used before SQL is read again."""
_NONE = timedelta(0)


class KnownRobots(msgspec.Struct, frozen=True):
    """The robots.txt rules of a host, while they are valid."""

    state: RobotsState
    rules: Rules | None
    until: datetime
    """When SQL is read again."""
    read_at: datetime
    reason: str | None = None
    """Why nothing is allowed, if that does not follow from the rules."""

    def allows(self, url: str, user_agent: str) -> bool:
        """Whether a User-Agent may fetch a URL."""
        if self.state is RobotsState.ELSEWHERE:
            return False
        return self.rules is None or self.rules.allows(url, user_agent)

    def forbidden(self, url: str, user_agents: Collection[str]) -> frozenset[str]:
        """The User-Agents that may not fetch a URL."""
        if self.state is RobotsState.ELSEWHERE:
            return frozenset(user_agents)
        return frozenset() if self.rules is None else self.rules.forbidden(url, user_agents)


class HostRegistry:
    """The hosts of a deployment. `user_agents` returns the User-Agents of all identities in use."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        settings: CrawlSettings,
        *,
        user_agents: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._database, self._gate, self.settings, self._user_agents = database, gate, settings, user_agents
        self._known: OrderedDict[str, KnownRobots] = OrderedDict()
        self._registered: set[str] = set()

    async def register(self, host: str) -> Host:
        """Register a host and set its pace in the gate; required before a job for it is enqueued."""
        await self._database.transaction(hosts.register, require_host(host))
        applied, found = None, await self.get(host)
        # Another process may change the row between the read and the update of the gate. Repeat until both agree.
        while applied is None or _pace_of(found) != _pace_of(applied):
            await self._update_gate(found)
            applied, found = found, await self.get(host)
        self._registered.add(host)
        return found

    async def is_registered(self, host: str) -> bool:
        """Whether any process has registered the host; if so, the gate knows its pace."""
        if host not in self._registered and await self._database.read(hosts.find, host) is not None:
            self._registered.add(host)
        return host in self._registered

    async def get(self, host: str) -> Host:
        """Return one host; raises `NotFound`."""
        return await self._database.read(hosts.get, host)

    async def list(self) -> Sequence[Host]:
        """All hosts, by name."""
        return await self._database.read(hosts.everything)

    async def forget(self, host: str) -> None:
        """Have the next call read robots.txt of a host again; until then its known Crawl-delay applies.

        Other processes use their cached rules for up to a minute.
        """
        found = await self.get(host)
        values = {"robots_state": RobotsState.UNKNOWN, "robots": None, "read_at": None, **_RESET}
        await self._database.transaction(hosts.write, host, values)
        self._known.pop(host, None)
        # Unknown rules: the gate lets only one call go at a time until they are read.
        await self._update_gate(msgspec.structs.replace(found, robots_state=RobotsState.UNKNOWN))

    async def restore(self) -> None:
        """Write the pace and the current pause of each host to the gate, which may have lost them. Can be repeated."""
        applied = dict[str, tuple[bool, int]]()
        while news := [host for host in await self.list() if applied.get(host.host) != _pace_of(host)]:
            for start in range(0, len(news), _AT_ONCE):
                await asyncio.gather(*(self._update_gate(host) for host in news[start : start + _AT_ONCE]))
            applied |= {host.host: _pace_of(host) for host in news}

    async def update_delays(self) -> None:
        """Recompute the Crawl-delay of all hosts, before an identity with another User-Agent is used."""
        agents = await self._user_agents()
        for host in await self.list():
            if host.robots is not None:
                delay_ms = milliseconds(Rules(host.robots).crawl_delay(agents))
                if delay_ms != host.crawl_delay_ms:
                    # Gate, SQL, gate: a process that dies in between leaves the gate slower
                    # than SQL says, never faster.
                    new = msgspec.structs.replace(host, crawl_delay_ms=delay_ms)
                    await self._update_gate(new)
                    await self._database.transaction(hosts.write, host.host, {"crawl_delay_ms": delay_ms})
                    await self._update_gate(new)

    def cached(self, host: str) -> KnownRobots | None:
        """The rules of a host, if this process has valid ones; used for every call."""
        known = self._known.get(host)
        return known if known is not None and known.until > self._database.clock.now() else None

    def last_known(self, host: str) -> KnownRobots | None:
        """The rules of a host as this process last knew them, even if they have expired."""
        return self._known.get(host)

    async def user_agents(self) -> Collection[str]:
        """The User-Agents of all identities in use."""
        return await self._user_agents()

    async def known(self, host: str) -> KnownRobots | None:
        """The rules of a host, from the cache or SQL; None if robots.txt has to be read."""
        if self.cached(host) is None:
            stored = await self._database.read(hosts.find, host)
            if stored is not None:
                self._remember(stored)
        return self.cached(host)

    async def apply_answer(self, host: Host, answer: Answer) -> RobotsAnswer:
        """Apply the answer to a request for robots.txt."""
        found = meaning_of(answer, refusals=host.refusals, redirects=host.redirects)
        match found:
            case RobotsAnswer.TEXT:
                await self._keep(host, RobotsState.READ, text_of(answer))
            case RobotsAnswer.NONE if answer.status in (401, 403) and host.robots is not None:
                await self._keep(host, RobotsState.READ, host.robots)  # keep the rules that were last readable
            case RobotsAnswer.NONE:
                await self._keep(host, RobotsState.NONE, None)
            case RobotsAnswer.ELSEWHERE:
                await self._keep(host, RobotsState.ELSEWHERE, None, f"it is at {shown(moved_to(answer))}")
            # Each redirect is followed with another permit, so its state is kept in SQL.
            case RobotsAnswer.MOVED:
                values = {"robots_url": moved_to(answer), "redirects": host.redirects + 1}
                await self._database.transaction(hosts.write, host.host, values)
            case RobotsAnswer.REFUSED:
                await self._database.transaction(hosts.write, host.host, {"refusals": host.refusals + 1})
            case RobotsAnswer.UNREADABLE:
                pass
        return found

    async def record_unreadable(self, host: Host, reason: str, answer: Answer | None = None) -> timedelta:
        """Record that robots.txt could not be read; returns the growing pause before the next attempt."""
        pause = self.settings.robots_pauses.delay(host.failures + 1)
        if answer is not None:
            pause = max(pause, answer.retry_after(longest=self.settings.longest_retry_after) or _NONE)
        until = self._database.clock.now() + pause
        values: dict[str, Any] = {"failures": host.failures + 1, "rests_until": until, "reason": reason}
        values |= {"robots_url": None, "redirects": 0}  # a redirect may have been temporary
        await self._database.transaction(hosts.write, host.host, values)
        log.warning("crawl.robots_unreadable", host=host.host, failures=host.failures + 1, reason=reason)
        return pause

    async def _keep(self, host: Host, state: RobotsState, text: str | None, reason: str | None = None) -> None:
        """Store what was read of a host's robots.txt, and update the gate with its crawl delay.

        Repeated if the user agents of the identities changed meanwhile.
        """
        rules = None if text is None else Rules(text)
        while True:
            agents = await self._user_agents()
            delay_ms = 0 if rules is None else milliseconds(rules.crawl_delay(agents))
            new = msgspec.structs.replace(host, robots_state=state, crawl_delay_ms=delay_ms)
            await self._update_gate(new)
            now = self._database.clock.now()
            values: dict[str, Any] = {
                "robots_state": state,
                "robots": text,
                "read_at": now,
                "crawl_delay_ms": delay_ms,
                **_RESET,
                "reason": reason,
            }
            await self._database.transaction(hosts.write, host.host, values)
            await self._update_gate(new)
            if await self._user_agents() == agents:  # otherwise an identity was added that missed these rules
                break
        self._remember(msgspec.structs.replace(new, robots=text, read_at=now, reason=reason))
        log.info("crawl.robots_read", host=host.host, state=str(state), crawl_delay_ms=delay_ms)

    def _remember(self, host: Host) -> None:
        """Cache the parsed rules of a host for at most a minute."""
        self._registered.add(host.host)
        if host.read_at is None or host.robots_state == RobotsState.UNKNOWN:
            return
        # Other processes may read robots.txt again. A cache of one minute bounds how long this one uses old rules.
        until = min(host.read_at + self.settings.robots_max_age, self._database.clock.now() + _TRUST_CACHE_FOR)
        before = self._known.get(host.host)
        if before is not None and before.read_at == host.read_at:  # parsing a long robots.txt takes time
            rules = before.rules
        else:
            rules = None if host.robots is None else Rules(host.robots)
        known = KnownRobots(RobotsState(host.robots_state), rules, until, host.read_at, host.reason)
        self._known[host.host] = known
        # The host that was read from SQL longest ago is removed first.
        self._known.move_to_end(host.host)
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)

    async def _update_gate(self, host: Host) -> None:
        """Update the gate. Before robots.txt is known, calls are sequential, so that none precedes its rules."""
        rests = _NONE if host.rests_until is None else max(_NONE, host.rests_until - self._database.clock.now())
        await self._gate.pace(
            POOL,
            host.host,
            gap_ms=milliseconds(max(self.settings.delay, host.crawl_delay)),
            one_at_a_time=host.robots_state == RobotsState.UNKNOWN,
            rest_ms=milliseconds(rests),
        )


def _pace_of(host: Host) -> tuple[bool, int]:
    """The part of a host that is sent to the gate; rests only grow there."""
    return host.robots_state == RobotsState.UNKNOWN, host.crawl_delay_ms


_RESET: dict[str, Any] = {"robots_url": None, "redirects": 0, "failures": 0, "refusals": 0, "reason": None}
