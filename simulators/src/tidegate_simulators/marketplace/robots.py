"""The robots.txt of a host, and what it forbids by the rules of RFC 9309."""

import re
from functools import lru_cache

from tidegate_simulators.marketplace.config import RobotsGroup, RobotsSettings

PATH = b"/robots.txt"
_NOTHING = RobotsGroup(allow=(), disallow=("/",))
_EVERYTHING = RobotsGroup(allow=(), disallow=())


class Robots:
    """One version of a host's robots.txt."""

    def __init__(self, settings: RobotsSettings) -> None:
        self.settings = settings
        self.text = "\n".join(_lines(settings)).encode()
        self._groups: dict[bytes, RobotsGroup] = {}

    def delay_us(self, agent: bytes) -> int:
        """Crawl-delay for an agent."""
        return round((self._group(agent).crawl_delay_s or 0) * 1e6)

    def allows(self, agent: bytes, target: bytes) -> bool:
        """Whether an agent may ask for a path with its query: the longest pattern that fits decides, Allow before
        Disallow."""
        if target.partition(b"?")[0] == PATH:
            return True
        group = self._group(agent)
        longest, is_allowed = -1, True
        for patterns, verdict in ((group.disallow, False), (group.allow, True)):
            for pattern in patterns:
                if len(pattern) >= longest and _compiled(pattern).match(target):
                    longest, is_allowed = len(pattern), verdict
        return is_allowed

    def _group(self, agent: bytes) -> RobotsGroup:
        found = self._groups.get(agent)
        if found is None:
            found = self._chosen(agent.decode("latin-1").lower())
            if len(self._groups) < 10_000:
                self._groups[agent] = found
        return found

    def _chosen(self, agent: str) -> RobotsGroup:
        if self.settings.status == 404:
            return _EVERYTHING
        if self.settings.status != 200:
            return _NOTHING
        named = [group for group in self.settings.groups if group.agent != "*" and group.agent.lower() in agent]
        others = [group for group in self.settings.groups if group.agent == "*"]
        return max(named, key=lambda group: len(group.agent)) if named else (others or [_EVERYTHING])[0]


def _lines(settings: RobotsSettings) -> list[str]:
    lines = ["# What a crawler may read here"]
    for group in settings.groups:
        lines += ["", f"User-agent: {group.agent}"]
        # Some readers take the first that fits, not the longest.
        lines += [f"Allow: {path}" for path in group.allow]
        # Without a rule, a group and the next one would be one group of two agents.
        lines += [f"Disallow: {path}" for path in group.disallow] or ([] if group.allow else ["Disallow:"])
        if group.crawl_delay_s is not None:
            lines.append(f"Crawl-delay: {group.crawl_delay_s:g}")
    return [*lines, ""]


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re.Pattern[bytes]:
    """`*` stands for anything, `$` at the end for the end."""
    text = pattern.removesuffix("$")
    end = "$" if text != pattern else ""
    return re.compile((".*".join(re.escape(part) for part in text.split("*")) + end).encode(), re.DOTALL)
