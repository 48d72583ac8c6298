"""What is known of hosts: in memory, else in SQL; and the gate is told how fast each may be called.

The gate is told first and SQL is written second. Whoever dies in between leaves a gate that is too slow for what SQL
says, never one that is too fast; and the next one reads robots.txt again. After that the gate is told once more, and
whoever tells it what SQL says looks there again afterwards: so of two who do at once, the newer word is the last.
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
from tidegate.systems.crawl.refusals import retry_after
from tidegate.systems.crawl.robots import Found, RobotsState, Rules, meaning_of, moved_to, text_of
from tidegate.systems.crawl.settings import CrawlSettings

log = get_logger(__name__)

POOL = "crawl"
"""All identities; a bucket of it is a host."""
_AT_ONCE = 50
_MOST_KEPT = 1000
_BELIEVED = timedelta(minutes=1)
"""For how long a process goes by its memory, before it looks in SQL whether that still counts."""
_NONE = timedelta(0)


class Known(msgspec.Struct, frozen=True):
    """What a host's robots.txt says, as long as that counts."""

    state: RobotsState
    rules: Rules | None
    until: datetime
    """When SQL is asked again."""
    read_at: datetime
    reason: str | None = None
    """Why nothing is allowed, where that is not in the rules."""

    def allows(self, url: str, user_agent: str) -> bool:
        """Whether somebody who calls himself so may call this address."""
        if self.state is RobotsState.ELSEWHERE:
            return False
        return self.rules is None or self.rules.allows(url, user_agent)

    def forbidden(self, url: str, user_agents: Collection[str]) -> frozenset[str]:
        """Those of these User-Agents that may not call this address."""
        if self.state is RobotsState.ELSEWHERE:
            return frozenset(user_agents)
        return frozenset() if self.rules is None else self.rules.forbidden(url, user_agents)


class HostBook:
    """The hosts of an installation. `user_agents` tells how all identities that are in use call themselves."""

    def __init__(
        self,
        database: Database,
        gate: Gate,
        settings: CrawlSettings,
        *,
        user_agents: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._database, self._gate, self.settings, self._user_agents = database, gate, settings, user_agents
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._met: set[str] = set()

    async def meet(self, host: str) -> Host:
        """Make a host known, and tell the gate its pace; to be done before a job for it is offered."""
        await self._database.transaction(hosts.meet, require_host(host))
        told, found = None, await self.get(host)
        while told is None or _pace_of(found) != _pace_of(told):
            await self._tell_gate(found)
            told, found = found, await self.get(host)
        self._met.add(host)
        return found

    async def is_met(self, host: str) -> bool:
        """Whether a host was met, by whomever; if so, the gate knows its pace."""
        if host not in self._met and await self._database.read(hosts.find, host) is not None:
            self._met.add(host)
        return host in self._met

    async def get(self, host: str) -> Host:
        """One host; raise `NotFound`."""
        return await self._database.read(hosts.get, host)

    async def list(self) -> Sequence[Host]:
        """All hosts, by name."""
        return await self._database.read(hosts.everything)

    async def forget(self, host: str) -> None:
        """Let robots.txt of a host be read anew by the next call; until then the Crawl-delay that it asked for counts.

        Other processes go by what they have in memory for a minute.
        """
        found = await self.get(host)
        values = {"robots_state": RobotsState.UNKNOWN, "robots": None, "read_at": None, **_ANEW}
        await self._database.transaction(hosts.write, host, values)
        self._known.pop(host, None)
        await self._tell_gate(msgspec.structs.replace(found, robots_state=RobotsState.UNKNOWN))

    async def restore(self) -> None:
        """Tell the gate the pace of every host, and how long it has to rest; always right, at any moment."""
        told = dict[str, tuple[bool, int]]()
        while news := [host for host in await self.list() if told.get(host.host) != _pace_of(host)]:
            for start in range(0, len(news), _AT_ONCE):
                await asyncio.gather(*(self._tell_gate(host) for host in news[start : start + _AT_ONCE]))
            told |= {host.host: _pace_of(host) for host in news}

    async def repace(self) -> None:
        """Somebody with another User-Agent is about to call: see whether a robots.txt asks that one for more time."""
        agents = await self._user_agents()
        for host in await self.list():
            if host.robots is not None:
                delay_ms = milliseconds(Rules(host.robots).crawl_delay(agents))
                if delay_ms != host.crawl_delay_ms:
                    new = msgspec.structs.replace(host, crawl_delay_ms=delay_ms)
                    await self._tell_gate(new)
                    await self._database.transaction(hosts.write, host.host, {"crawl_delay_ms": delay_ms})
                    await self._tell_gate(new)

    def at_hand(self, host: str) -> Known | None:
        """What robots.txt of a host says, if this process knows it; asked for every call."""
        known = self._known.get(host)
        return known if known is not None and known.until > self._database.clock.now() else None

    def last_known(self, host: str) -> Known | None:
        """The rules of a host as this process knew them last, also where they have expired."""
        return self._known.get(host)

    async def user_agents(self) -> Collection[str]:
        """The User-Agents of all identities in use."""
        return await self._user_agents()

    async def known(self, host: str) -> Known | None:
        """What robots.txt of a host says, if any process knows it; None where somebody has to read it first."""
        if self.at_hand(host) is None:
            stored = await self._database.read(hosts.find, host)
            if stored is not None:
                self._remember(stored)
        return self.at_hand(host)

    async def learn(self, host: Host, answer: Answer) -> Found:
        """Go by an answer to a call for robots.txt from now on."""
        found = meaning_of(answer, refusals=host.refusals, redirects=host.redirects)
        match found:
            case Found.TEXT:
                await self._keep(host, RobotsState.READ, text_of(answer))
            case Found.NONE if answer.status in (401, 403) and host.robots is not None:
                await self._keep(host, RobotsState.READ, host.robots)  # what it said when it last spoke to us
            case Found.NONE:
                await self._keep(host, RobotsState.NONE, None)
            case Found.ELSEWHERE:
                await self._keep(host, RobotsState.ELSEWHERE, None, f"it is at {shown(moved_to(answer))}")
            case Found.MOVED:
                values = {"robots_url": moved_to(answer), "redirects": host.redirects + 1}
                await self._database.transaction(hosts.write, host.host, values)
            case Found.REFUSED:
                await self._database.transaction(hosts.write, host.host, {"refusals": host.refusals + 1})
            case Found.UNREADABLE:
                pass
        return found

    async def despair(self, host: Host, reason: str, answer: Answer | None = None) -> timedelta:
        """robots.txt could not be read: for how long the host is left alone now, which grows with each time."""
        pause = self.settings.robots_pauses.delay(host.failures + 1)
        if answer is not None:
            pause = max(pause, retry_after(answer, self.settings) or _NONE)
        until = self._database.clock.now() + pause
        values: dict[str, Any] = {"failures": host.failures + 1, "rests_until": until, "reason": reason}
        values |= {"robots_url": None, "redirects": 0}  # where we were sent may be a place for today only
        await self._database.transaction(hosts.write, host.host, values)
        log.warning("crawl.robots_unreadable", host=host.host, failures=host.failures + 1, reason=reason)
        return pause

    async def _keep(self, host: Host, state: RobotsState, text: str | None, reason: str | None = None) -> None:
        rules = None if text is None else Rules(text)
        while True:
            agents = await self._user_agents()
            delay_ms = 0 if rules is None else milliseconds(rules.crawl_delay(agents))
            new = msgspec.structs.replace(host, robots_state=state, crawl_delay_ms=delay_ms)
            await self._tell_gate(new)
            now = self._database.clock.now()
            values: dict[str, Any] = {
                "robots_state": state,
                "robots": text,
                "read_at": now,
                "crawl_delay_ms": delay_ms,
                **_ANEW,
                "reason": reason,
            }
            await self._database.transaction(hosts.write, host.host, values)
            await self._tell_gate(new)
            if await self._user_agents() == agents:  # else somebody joined, and could not see what we wrote
                break
        self._remember(msgspec.structs.replace(new, robots=text, read_at=now, reason=reason))
        log.info("crawl.robots_read", host=host.host, state=str(state), crawl_delay_ms=delay_ms)

    def _remember(self, host: Host) -> None:
        self._met.add(host.host)
        if host.read_at is None or host.robots_state == RobotsState.UNKNOWN:
            return
        until = min(host.read_at + self.settings.robots_max_age, self._database.clock.now() + _BELIEVED)
        before = self._known.get(host.host)
        if before is not None and before.read_at == host.read_at:  # a long one takes its time to be parsed
            rules = before.rules
        else:
            rules = None if host.robots is None else Rules(host.robots)
        known = Known(RobotsState(host.robots_state), rules, until, host.read_at, host.reason)
        self._known[host.host] = known
        self._known.move_to_end(host.host)
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)

    async def _tell_gate(self, host: Host) -> None:
        """One whose robots.txt nobody knows is called once at a time, so that nobody runs ahead of what it will say."""
        rests = _NONE if host.rests_until is None else max(_NONE, host.rests_until - self._database.clock.now())
        await self._gate.pace(
            POOL,
            host.host,
            gap_ms=milliseconds(max(self.settings.delay, host.crawl_delay)),
            one_at_a_time=host.robots_state == RobotsState.UNKNOWN,
            rest_ms=milliseconds(rests),
        )


def _pace_of(host: Host) -> tuple[bool, int]:
    """What the gate is told of it; rests only grow there."""
    return host.robots_state == RobotsState.UNKNOWN, host.crawl_delay_ms


_ANEW: dict[str, Any] = {"robots_url": None, "redirects": 0, "failures": 0, "refusals": 0, "reason": None}
