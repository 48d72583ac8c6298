"""Primary limits: a fixed window for each owner and bucket, which opens with its first call."""

import math
from dataclasses import dataclass

from tidegate_simulators.github.calls import Call, Caller
from tidegate_simulators.github.config import LimitSettings
from tidegate_simulators.github.ledger import WindowUse

_MOST_CLOSED = 10_000


@dataclass
class Allowance:
    """What one owner may do in one bucket now."""

    owner: str
    bucket: str
    limit: int
    length_s: float
    opened: float = 0
    ends: int = 0
    used: int = 0

    def is_open(self, at: float) -> bool:
        """Whether a window runs; else the next call opens one."""
        return at < self.ends

    def left(self, at: float) -> int:
        """What is left of the running window, or all of the next one."""
        return max(0, self.limit - self.used) if self.is_open(at) else self.limit

    def headers(self, at: float) -> dict[str, str]:
        """The five headers that every answer has. A window that has not opened seems to end one length from now."""
        open_now = self.is_open(at)
        used = min(self.used, self.limit) if open_now else 0
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.limit - used),
            "x-ratelimit-used": str(used),
            "x-ratelimit-reset": str(self.ends if open_now else math.ceil(at + self.length_s)),
            "x-ratelimit-resource": self.bucket,
        }

    def use(self, at: float) -> WindowUse:
        """The running window for the report."""
        return WindowUse(self.owner, self.bucket, self.limit, self.used, self.opened, self.ends, self.is_open(at))


class Windows:
    """The allowances of all callers, and the results of past windows."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._allowances: dict[tuple[str, str], Allowance] = {}
        self._closed: list[WindowUse] = []

    def of(self, caller: Caller, bucket: str) -> Allowance:
        """The allowance that a call of this caller is taken from: all tokens of an owner share it."""
        key = caller.owner.key, bucket
        found = self._allowances.get(key)
        if found is None:
            limit, length = self._terms(caller, bucket)
            found = self._allowances[key] = Allowance(caller.owner.key, bucket, limit, length)
        return found

    def _terms(self, caller: Caller, bucket: str) -> tuple[int, float]:
        """Limit and length."""
        limits, known = self._limits, caller.is_authorised
        match bucket:
            case "search":
                return (limits.search_quota if known else max(1, limits.search_quota // 3)), limits.minute_s
            case "code_search":
                return limits.code_search_quota, limits.minute_s
            case _ if not known:
                return limits.anonymous_quota, limits.window_s
            case "graphql":
                return limits.graphql_quota or caller.quota or limits.quota, limits.window_s
            case _:
                return caller.quota or limits.quota, limits.window_s

    def charge(self, call: Call, cost: int) -> Allowance:
        """Take `cost` from the running window, or open a new one with it."""
        allowance = self.of(call.caller, call.match.bucket)
        if cost and not allowance.is_open(call.at):
            if allowance.used and len(self._closed) < _MOST_CLOSED:
                self._closed.append(allowance.use(call.at))
            allowance.opened, allowance.used = call.at, 0
            # The header has whole seconds; the window must not end before the second that it names.
            allowance.ends = math.ceil(call.at + allowance.length_s)
        if cost:
            allowance.used += cost
        return allowance

    def uses(self, at: float) -> list[WindowUse]:
        """Every window that was ever opened."""
        return [*self._closed, *(a.use(at) for a in self._allowances.values() if a.used)]


def installation_quota(quota: int, repositories: int, users: int) -> int:
    """What an installation may do: more with size, up to two and a half times as much."""
    return min(quota * 5 // 2, quota + quota * (max(0, repositories - 20) + max(0, users - 20)) // 100)
