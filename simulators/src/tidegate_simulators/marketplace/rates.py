"""How much a host takes from one caller or from all: so many calls in any window; beyond that a strike, then a ban."""

from enum import StrEnum

import msgspec

from tidegate_simulators.marketplace.config import LimitSettings
from tidegate_simulators.sliding import SlidingLog

_US = 1_000_000
_DAY_US = 86_400 * _US


class Refusal(StrEnum):
    """Why a call was refused."""

    IDENTITY_RATE = "identity_rate"
    HOST_RATE = "host_rate"
    IDENTITY_BANNED = "identity_banned"
    HOST_BANNED = "host_banned"


class Verdict(msgspec.Struct, frozen=True):
    """A call is refused, and after how long it would not be."""

    refusal: Refusal
    wait_us: int

    @property
    def retry_after_s(self) -> int:
        """In whole seconds, never too few."""
        return max(1, -(-self.wait_us // _US))


class Rate:
    """Of one caller, or of all, at one host. Refused calls take nothing from it, so what Retry-After says is true."""

    def __init__(self, limit: int | None, window_s: float, strikes_until_ban: int | None, ban_s: float) -> None:
        self._limit, self._window_us = limit, round(window_s * _US)
        self._strikes_until_ban, self._ban_us = strikes_until_ban, round(ban_s * _US)
        self._admitted = SlidingLog(min(self._window_us, _DAY_US))
        self._banned_until_us = self.strikes = 0
        self.bans = 0
        self.told_us: int | None = None
        """When the current ban was first reported to a caller."""

    def ban(self, at_us: int, for_us: int | None = None) -> None:
        """From now on, for as long as usual unless it is said."""
        self._banned_until_us, self.told_us = at_us + (self._ban_us if for_us is None else for_us), None
        self.bans += 1

    def pardon(self) -> None:
        """Forget the strikes, and end a ban."""
        self._banned_until_us, self.strikes, self.told_us = 0, 0, None

    def banned_for(self, at_us: int) -> int:
        """How much longer the ban lasts, in µs; 0: there is none."""
        if self._banned_until_us and at_us >= self._banned_until_us:
            self.pardon()
        return max(0, self._banned_until_us - at_us)

    def room_after(self, at_us: int) -> int:
        """After how long there is room for a call, in µs; 0: there is now. Otherwise it is a strike."""
        if self._limit is None or self._admitted.count(at_us) < self._limit:
            return 0
        wait_us = self._admitted.leaves_us - at_us
        self.strikes += 1
        if self._strikes_until_ban is not None and self.strikes >= self._strikes_until_ban:
            self.ban(at_us)
        return wait_us

    def admit(self, at_us: int) -> None:
        """A call is answered."""
        if self._limit is not None:
            self._admitted.add(at_us)


def rate_of_identity(limits: LimitSettings) -> Rate:
    """What one identity may do at one host."""
    return Rate(limits.per_identity, limits.identity_window_s, limits.strikes_until_ban, limits.ban_s)


def rate_of_host(limits: LimitSettings) -> Rate:
    """The limits of all identities together at one host."""
    return Rate(limits.per_host, limits.host_window_s, limits.host_strikes_until_ban, limits.host_ban_s)


def judge(host: Rate, caller: Rate, at_us: int) -> Verdict | None:
    """Judge a call; None: it is admitted. Limits of the host are checked before those of the identity."""
    if wait_us := host.banned_for(at_us):
        return Verdict(Refusal.HOST_BANNED, wait_us)
    if wait_us := caller.banned_for(at_us):
        return Verdict(Refusal.IDENTITY_BANNED, wait_us)
    if wait_us := host.room_after(at_us):
        return Verdict(Refusal.HOST_RATE, wait_us)
    if wait_us := caller.room_after(at_us):
        return Verdict(Refusal.IDENTITY_RATE, wait_us)
    host.admit(at_us)
    caller.admit(at_us)
    return None
