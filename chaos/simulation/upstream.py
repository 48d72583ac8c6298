"""The simulated upstream: each credential has a quota per window, calls at once and calls in a minute."""

from collections import deque
from random import Random

import msgspec

from tidegate.primitives.gate import Allowance

MINUTE_MS = 60_000
_EPOCH_S = 1_700_000_000


class UpstreamLimits(msgspec.Struct, frozen=True):
    """What the upstream allows each credential."""

    quota: int = 8
    window_ms: int = 60_000
    at_once: int = 4
    per_minute: int = 12


class Answer(msgspec.Struct, frozen=True):
    """What the upstream answers, or the lack of an answer."""

    is_lost: bool = False
    """The connection broke; the call may have been counted."""
    has_failed: bool = False
    """An error of the server, with headers."""
    blocked_ms: int | None = None
    """It refused the call."""
    allowance: Allowance | None = None


class _Account(msgspec.Struct):
    offset_ms: int
    skew_ms: int
    window: int = -1
    used: int = 0
    under_way: int = 0
    minute: deque[int] = msgspec.field(default_factory=deque[int])


class Upstream:
    """Counts calls where they arrive. A call beyond a limit is a violation, whatever is answered."""

    def __init__(self, credentials: list[str], limits: UpstreamLimits, random: Random) -> None:
        self._limits, self._random = limits, random
        self._accounts = {
            name: _Account(random.randrange(limits.window_ms), random.randrange(-5000, 5000)) for name in credentials
        }
        self.calls = 0
        self.violations: list[str] = []

    def arrive(self, credential: str, now_ms: int, *, is_faulty: bool) -> Answer:
        """Count a call; its answer leaves the upstream when `leave` is called."""
        account, limits = self._accounts[credential], self._limits
        self.calls += 1
        window = (now_ms - account.offset_ms) // limits.window_ms
        if window != account.window:
            account.window, account.used = window, 0
        while account.minute and account.minute[0] <= now_ms - MINUTE_MS:
            account.minute.popleft()
        account.minute.append(now_ms)
        account.under_way += 1
        account.used += 1
        for what, number, most in (
            ("calls in a window", account.used, limits.quota),
            ("calls at once", account.under_way, limits.at_once),
            ("calls in a minute", len(account.minute), limits.per_minute),
        ):
            if number > most:
                self.violations.append(f"{credential} at {now_ms} ms: {number} {what}, {most} allowed")
        draw = self._random.random() if is_faulty else 1.0
        if draw < 0.002:
            return Answer(blocked_ms=5_000)
        ends_ms = account.offset_ms + (window + 1) * limits.window_ms
        said = Allowance(
            limit=limits.quota,
            remaining=max(0, limits.quota - account.used),
            window=_EPOCH_S + (ends_ms + account.skew_ms) // 1000,
            resets_in_ms=ends_ms - now_ms,
        )
        return Answer(is_lost=draw < 0.01, has_failed=draw < 0.03, allowance=said)

    def leave(self, credential: str) -> None:
        """The call has ended at the upstream."""
        self._accounts[credential].under_way -= 1
