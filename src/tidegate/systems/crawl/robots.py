"""robots.txt by RFC 9309: what an answer to it means, and what it says about a call.

200         its rules, as far as 500 KiB go
3xx         looked for where it is said to be, up to five times, on the same host; each step is a call of its own
401, 403    this identity was refused. Where several are, there is nothing to read: everything is allowed
429         this identity is to wait
other 4xx   there is none: everything is allowed
else        nobody knows, so nothing is allowed for now
"""

import re
from collections.abc import Collection, Iterable
from datetime import timedelta
from enum import StrEnum
from urllib.parse import urljoin

from protego import Protego

from tidegate.engine.upstream import Answer, Request
from tidegate.systems.crawl.hosts import host_of

PATH = "/robots.txt"
LARGEST = 500 * 1024
"""Bytes that are read; the rest of a larger one is left out, with the line that is cut."""
MOST_REDIRECTS = 5
REFUSALS_BELIEVED = 3
"""So many refusals in a row are no ban of an identity: the host shows its robots.txt to nobody."""
_LONGEST_DELAY = timedelta(days=1)
_SENT_ELSEWHERE = frozenset({301, 302, 303, 307, 308})
_REFUSED = frozenset({401, 403})
_NAMED = re.compile(r"^[ \t]*user[-_ ]?agents?[ \t]*:?[ \t]*([^#\r\n]*[^#\s])", re.IGNORECASE | re.MULTILINE)


class RobotsState(StrEnum):
    """What is known of a host's robots.txt."""

    UNKNOWN = "unknown"  # not read yet, or to be read anew
    READ = "read"
    NONE = "none"  # there is none: everything is allowed
    ELSEWHERE = "elsewhere"  # it is at another host, to which this call must not go: nothing is allowed


class Found(StrEnum):
    """What an answer to a call for robots.txt means."""

    TEXT = "text"
    NONE = "none"
    MOVED = "moved"
    ELSEWHERE = "elsewhere"
    REFUSED = "refused"  # not the host's rules, but its answer to this identity
    UNREADABLE = "unreadable"


class Rules:
    """What a robots.txt says."""

    def __init__(self, text: str) -> None:
        self._rules = Protego.parse(text)
        self._names = {name.lower() for name in _NAMED.findall(text)} - {"*"}
        """The user agents that it names."""
        self._has_name: dict[str, bool] = {}

    def allows(self, url: str, user_agent: str) -> bool:
        """Whether somebody who calls himself so may call this address."""
        return self._rules.can_fetch(url, user_agent)

    def forbidden(self, url: str, user_agents: Collection[str]) -> frozenset[str]:
        """Those of these User-Agents that may not call this address.

        Those that no rule names are alike, so one of them is looked up for all.
        """
        named = [agent for agent in user_agents if self._names_agent(agent)]
        others = [agent for agent in user_agents if not self._names_agent(agent)]
        forbidden = [agent for agent in named if not self.allows(url, agent)]
        return frozenset(forbidden if not others or self.allows(url, others[0]) else [*forbidden, *others])

    def tells_apart(self, user_agents: Collection[str]) -> bool:
        """Whether some of these User-Agents may be allowed what others are not."""
        return len(user_agents) > 1 and any(map(self._names_agent, user_agents))

    def _names_agent(self, user_agent: str) -> bool:
        if user_agent not in self._has_name:
            agent = user_agent.lower()
            self._has_name[user_agent] = any(name in agent for name in self._names)
        return self._has_name[user_agent]

    def crawl_delay(self, user_agents: Iterable[str]) -> timedelta:
        """The longest Crawl-delay that any of them is asked for; a day at most."""
        seconds = max((self._rules.crawl_delay(agent) or 0 for agent in user_agents), default=0)
        return min(timedelta(seconds=min(seconds, _LONGEST_DELAY.total_seconds())), _LONGEST_DELAY)


def meaning_of(answer: Answer, *, refusals: int, redirects: int) -> Found:
    """What an answer to a call for robots.txt means, after so many refusals and redirects before it."""
    if answer.status == 200:
        return Found.TEXT
    if answer.status in _SENT_ELSEWHERE:
        return _where_to(answer, redirects)
    if answer.status == 429 or (answer.status in _REFUSED and _is_of_identity(answer, refusals)):
        return Found.REFUSED
    return Found.NONE if 400 <= answer.status < 500 else Found.UNREADABLE


def text_of(answer: Answer) -> str:
    """The text, no more of it than is read."""
    body = answer.body
    if len(body) > LARGEST:
        body = body[: max(body.rfind(b"\n", 0, LARGEST), body.rfind(b"\r", 0, LARGEST), 0)]
    return body.decode("utf-8-sig", errors="replace")


def moved_to(answer: Answer) -> str:
    """Where a redirect leads."""
    return urljoin(answer.url, answer.headers.get("Location", ""))


def _where_to(answer: Answer, redirects: int) -> Found:
    if "Location" not in answer.headers or redirects >= MOST_REDIRECTS:
        return Found.NONE  # as the RFC has it: one that cannot be reached by five steps is none
    try:
        goal = Request(url=moved_to(answer), purpose="crawl.robots")
    except ValueError:  # it leads nowhere
        return Found.NONE
    # The call carries an identity's headers: what went out encrypted must not go out plain.
    is_plain = answer.url.startswith("https:") and not goal.url.startswith("https:")
    return Found.MOVED if host_of(goal.url) == host_of(answer.url) and not is_plain else Found.ELSEWHERE


def _is_of_identity(answer: Answer, refusals: int) -> bool:
    """Who says when to come back speaks of a ban; others are believed to mean it when they repeat it."""
    return "Retry-After" in answer.headers or refusals + 1 < REFUSALS_BELIEVED
