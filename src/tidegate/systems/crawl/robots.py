"""robots.txt according to RFC 9309: the meaning of an answer, and the rules for a call.

200         its rules, up to 500 KiB
3xx         followed up to five times, on the same host; each step is a call of its own
401, 403    this identity is refused; after several in a row, there is no robots.txt: everything is allowed
429         this identity has to wait
other 4xx   there is none: everything is allowed
else        unknown, so nothing is allowed for now
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
"""Maximum size in bytes; the rest of a larger one is ignored, with the line that is cut."""
MOST_REDIRECTS = 5
REFUSALS_UNTIL_MISSING = 3
"""After this many refusals in a row, the host is taken to refuse robots.txt to all callers."""
_LONGEST_DELAY = timedelta(days=1)
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_REFUSED = frozenset({401, 403})
_NAMED = re.compile(r"^[ \t]*user[-_ ]?agents?[ \t]*:?[ \t]*([^#\r\n]*[^#\s])", re.IGNORECASE | re.MULTILINE)


class RobotsState(StrEnum):
    """State of a host's robots.txt."""

    UNKNOWN = "unknown"  # not read yet, or to be read again
    READ = "read"
    NONE = "none"  # there is none: everything is allowed
    ELSEWHERE = "elsewhere"  # redirected to another host, where this call must not go: nothing is allowed


class RobotsAnswer(StrEnum):
    """The meaning of an answer to a request for robots.txt."""

    TEXT = "text"
    NONE = "none"
    MOVED = "moved"
    ELSEWHERE = "elsewhere"
    REFUSED = "refused"  # an answer to this identity, not the host's rules
    UNREADABLE = "unreadable"


class Rules:
    """The parsed rules of a robots.txt."""

    def __init__(self, text: str) -> None:
        # The names are collected separately, because the parser does not list them. They tell whether rules can differ
        # between identities.
        self._rules = Protego.parse(text)
        self._names = {name.lower() for name in _NAMED.findall(text)} - {"*"}
        """The User-Agents that it names."""
        self._has_name: dict[str, bool] = {}

    def allows(self, url: str, user_agent: str) -> bool:
        """Whether a User-Agent may fetch a URL."""
        return self._rules.can_fetch(url, user_agent)

    def forbidden(self, url: str, user_agents: Collection[str]) -> frozenset[str]:
        """The User-Agents that may not fetch a URL.

        Those that no rule names are treated alike, so one of them is checked for all.
        """
        named = [agent for agent in user_agents if self._names_agent(agent)]
        others = [agent for agent in user_agents if not self._names_agent(agent)]
        forbidden = [agent for agent in named if not self.allows(url, agent)]
        return frozenset(forbidden if not others or self.allows(url, others[0]) else [*forbidden, *others])

    def tells_apart(self, user_agents: Collection[str]) -> bool:
        """Whether the rules can differ between these User-Agents."""
        return len(user_agents) > 1 and any(map(self._names_agent, user_agents))

    def _names_agent(self, user_agent: str) -> bool:
        if user_agent not in self._has_name:
            agent = user_agent.lower()
            self._has_name[user_agent] = any(name in agent for name in self._names)
        return self._has_name[user_agent]

    def crawl_delay(self, user_agents: Iterable[str]) -> timedelta:
        """The longest Crawl-delay for any of these User-Agents; a day at most."""
        seconds = max((self._rules.crawl_delay(agent) or 0 for agent in user_agents), default=0)
        # Bounded before the conversion, since a huge number would overflow.
        return min(timedelta(seconds=min(seconds, _LONGEST_DELAY.total_seconds())), _LONGEST_DELAY)


def meaning_of(answer: Answer, *, refusals: int, redirects: int) -> RobotsAnswer:
    """The meaning of an answer to a request for robots.txt, after that many refusals and redirects."""
    if answer.status == 200:
        return RobotsAnswer.TEXT
    if answer.status in _REDIRECT_STATUSES:
        return _where_to(answer, redirects)
    if answer.status == 429 or (answer.status in _REFUSED and _is_of_identity(answer, refusals)):
        return RobotsAnswer.REFUSED
    # RFC 9309: a client error means that there is none; a server error means that nothing is allowed.
    return RobotsAnswer.NONE if 400 <= answer.status < 500 else RobotsAnswer.UNREADABLE


def text_of(answer: Answer) -> str:
    """The text of the answer, up to the maximum size."""
    body = answer.body
    if len(body) > LARGEST:
        # Cut at a line end: half a rule could allow or forbid another path.
        body = body[: max(body.rfind(b"\n", 0, LARGEST), body.rfind(b"\r", 0, LARGEST), 0)]
    return body.decode("utf-8-sig", errors="replace")


def moved_to(answer: Answer) -> str:
    """The target of a redirect."""
    return urljoin(answer.url, answer.headers.get("Location", ""))


def _where_to(answer: Answer, redirects: int) -> RobotsAnswer:
    if "Location" not in answer.headers or redirects >= MOST_REDIRECTS:
        return RobotsAnswer.NONE  # RFC 9309: after five redirects it counts as missing
    try:
        goal = Request(url=moved_to(answer), purpose="crawl.robots")
    except ValueError:  # not a valid URL
        return RobotsAnswer.NONE
    # The call carries an identity's headers, which must not be sent unencrypted after an encrypted request.
    is_plain = answer.url.startswith("https:") and not goal.url.startswith("https:")
    return RobotsAnswer.MOVED if host_of(goal.url) == host_of(answer.url) and not is_plain else RobotsAnswer.ELSEWHERE


def _is_of_identity(answer: Answer, refusals: int) -> bool:
    """Whether a refusal concerns this identity only: it has a Retry-After, or was not repeated often enough."""
    return "Retry-After" in answer.headers or refusals + 1 < REFUSALS_UNTIL_MISSING
