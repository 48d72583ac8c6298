"""Limits per key: calls in any second and in any day; calls beyond them are strikes, which lead to a ban."""

from collections import deque
from enum import StrEnum
from hashlib import blake2b

import msgspec

from tidegate_simulators.game.config import LimitSettings
from tidegate_simulators.sliding import SlidingLog
from tidegate_simulators.stalls import UncertainWindow, UncertainWindows

_US = 1_000_000


class Refusal(StrEnum):
    """Why a call was refused."""

    SECOND = "per_second"
    DAY = "per_day"
    BANNED = "banned"


class Verdict(msgspec.Struct, frozen=True):
    """A refusal, and the time until the call would be accepted."""

    refusal: Refusal
    wait_us: int

    @property
    def retry_after_s(self) -> int:
        """The wait in whole seconds, rounded up."""
        return max(1, -(-self.wait_us // _US))


class KeyReport(msgspec.Struct, frozen=True):
    """What one key did. Refused calls count too, unless it says otherwise."""

    key: str
    """Its name, not the key itself."""
    calls: int
    broken: int
    """Calls that broke a rule: too many in some second, after the end of a day's allowance, or under a ban."""
    refused: dict[str, int]
    """By the reason."""
    strikes: int
    """Since the last ban ended."""
    bans: int
    banned: bool
    most_in_a_second: int
    """The greatest number of calls that certainly came within one second, wherever it begins."""
    seconds_over: int
    """Such windows with more calls than allowed: one for each call that was too many."""
    uncertain: int
    """Windows over the limit by the time of reading only: the event loop had stalled, see `stalls`."""
    uncertain_windows: list[UncertainWindow]
    """The first ones."""
    most_in_a_clock_second: int
    """The greatest number in a second of the clock, as a coarser counter has it."""
    clock_seconds_over: int
    most_in_a_day: int
    """The greatest number of admitted calls in any window of a day."""
    most_in_a_clock_day: int
    """The greatest number of calls in a day of the clock, which began when the simulator did."""
    calls_of_the_day: int
    """Admitted calls in the day that ends now."""
    days_over: int
    """Calls that came although their day was used up."""


class _LateCall(msgspec.Struct):
    """A call that was read after a stall."""

    read_us: int
    earliest_us: int
    """When it may have come."""
    is_admitted: bool = False


class _StalledCalls:
    """How many calls came during the last stall; stalls that touch each other are one."""

    def __init__(self) -> None:
        self._from_us, self._until_us, self._calls = 0, -1, 0

    @property
    def length_us(self) -> int:
        """From when the first of them may have come until the last was read."""
        return self._until_us - self._from_us

    def add(self, at_us: int, delay_us: int) -> int:
        """Add a call; return how many there are."""
        if at_us - delay_us > self._until_us:
            self._from_us, self._calls = at_us - delay_us, 0
        self._until_us = at_us
        self._calls += 1
        return self._calls


class KeyAccount:
    """The calls of one key. Refused calls use up nothing, so that Retry-After is exact."""

    def __init__(self, name: str, limits: LimitSettings) -> None:
        self.name, self._limits = name, limits
        self._per_second, self._per_day = limits.per_second, limits.per_day
        self._second_us = round(limits.second_s * _US)
        self._arrived: deque[int] = deque()
        """Every call of the last second."""
        self._admitted: deque[int] = deque()
        """Those of them that were not refused."""
        self._late: deque[_LateCall] = deque()
        """Those that were read after a stall."""
        self._stall = _StalledCalls()
        self._day_us = round(limits.day_s * _US)
        self._day = SlidingLog(self._day_us)
        self._banned_until_us = self.strikes = 0
        self.clear()

    def clear(self) -> None:
        """Reset the counts; windows of limits, strikes and bans are kept."""
        self._calls = self._broken = self._bans = 0
        self._refused = dict.fromkeys(Refusal, 0)
        self._uncertain = UncertainWindows()
        self._most_in_a_second = self._seconds_over = self._most_in_a_day = 0
        self._clock_second, self._in_clock_second, self._clock_day, self._in_clock_day = -1, 0, -1, 0
        self._most_in_a_clock_second = self._clock_seconds_over = self._most_in_a_clock_day = 0

    def pardon(self) -> None:
        """Forget the strikes, and end a ban."""
        self._banned_until_us = self.strikes = 0

    def arrive(self, at_us: int, delay_us: int = 0) -> Verdict | None:
        """Record a call that is read now, at or after all others; None: it is admitted.

        It came at most `delay_us` ago. The limit per second is judged by what certainly came within one second; of the
        day, a stall is too small a part.
        """
        arrived, admitted = self._arrived, self._admitted
        before_us = at_us - self._second_us
        arrived.append(at_us)
        while arrived[0] <= before_us:
            arrived.popleft()
        while admitted and admitted[0] <= before_us:
            admitted.popleft()
        certain, room_taken = len(arrived), len(admitted)
        if delay_us or self._late:
            certain, room_taken = self._certain(at_us, delay_us)
        self._note(certain)
        self._note_by_clock(at_us // self._second_us, at_us // self._day_us)
        if room_taken >= self._per_second or self._banned_until_us or self._day.size >= self._per_day:
            verdict = self._judge(at_us, room_taken)
            if verdict is not None:
                self._broken += certain <= self._per_second  # else it is counted already
                return verdict
        if delay_us:
            self._late[-1].is_admitted = True
        admitted.append(at_us)
        of_day = self._day.add(at_us)
        if of_day > self._most_in_a_day:  # noqa: PLR1730
            self._most_in_a_day = of_day
        return None

    def _certain(self, at_us: int, delay_us: int) -> tuple[int, int]:
        """How many calls certainly came in the second that ends now, and how many of the admitted ones.

        Both are more than the limit where so many came during a stall that no second of it can have kept the limit.
        """
        late, before_us = self._late, at_us - self._second_us
        if delay_us:
            late.append(_LateCall(at_us, at_us - delay_us))
        while late and late[0].read_us <= before_us:
            late.popleft()
        earlier = [each for each in late if each.earliest_us <= before_us]
        certain = len(self._arrived) - len(earlier)
        room_taken = len(self._admitted) - sum(each.is_admitted for each in earlier)
        if delay_us and delay_us >= self._second_us:
            room_taken = 0  # the call itself may have come in an earlier second
        if delay_us and self._stall.add(at_us, delay_us) > self._per_second * (
            self._stall.length_us // self._second_us + 1
        ):
            certain, room_taken = max(certain, self._per_second + 1), max(room_taken, self._per_second)
        if len(self._arrived) > self._per_second >= certain:
            self._add_uncertain(at_us, certain)
        return certain, room_taken

    def _add_uncertain(self, at_us: int, certain: int) -> None:
        stall_us = max((each.read_us - each.earliest_us for each in self._late), default=0)
        window = UncertainWindow(
            Refusal.SECOND,
            self.name,
            at_us / _US,
            read=len(self._arrived),
            certain=certain,
            limit=self._per_second,
            stall_ms=stall_us / 1_000,
        )
        self._uncertain.add(window, self._second_us / _US)

    # These two run for each call: no `max`, which would be a call of its own.

    def _note(self, at_once: int) -> None:
        """A call came as one of so many in its window."""
        self._calls += 1
        if at_once > self._most_in_a_second:  # noqa: PLR1730
            self._most_in_a_second = at_once
        if at_once > self._per_second:
            self._seconds_over += 1
            self._broken += 1

    def _note_by_clock(self, second: int, day: int) -> None:
        """A call came in this second and this day of the clock."""
        if second != self._clock_second:
            self._clock_second, self._in_clock_second = second, 0
        if day != self._clock_day:
            self._clock_day, self._in_clock_day = day, 0
        self._in_clock_second += 1
        self._in_clock_day += 1
        if self._in_clock_second > self._most_in_a_clock_second:  # noqa: PLR1730
            self._most_in_a_clock_second = self._in_clock_second
        if self._in_clock_second == self._per_second + 1:
            self._clock_seconds_over += 1
        if self._in_clock_day > self._most_in_a_clock_day:  # noqa: PLR1730
            self._most_in_a_clock_day = self._in_clock_day

    def _judge(self, at_us: int, room_taken: int) -> Verdict | None:
        """All rules, one after the other: the call comes near a limit, or the key was banned."""
        if self._is_banned(at_us):
            self._refused[Refusal.BANNED] += 1
            return Verdict(Refusal.BANNED, self._banned_until_us - at_us)
        if self._day.count(at_us) >= self._per_day:
            return self._strike(Refusal.DAY, at_us, self._day.leaves_us)
        if room_taken >= self._per_second:
            return self._strike(Refusal.SECOND, at_us, self._admitted[0] + self._second_us)
        return None

    def _is_banned(self, at_us: int) -> bool:
        if self._banned_until_us and at_us >= self._banned_until_us:
            self.pardon()
        return self._banned_until_us > 0

    def _strike(self, refusal: Refusal, at_us: int, room_us: int) -> Verdict:
        self.strikes += 1
        self._refused[refusal] += 1
        allowed = self._limits.strikes_until_ban
        if allowed is not None and self.strikes >= allowed:
            self._banned_until_us = at_us + round(self._limits.ban_s * _US)
            self._bans += 1
        return Verdict(refusal, room_us - at_us)

    def report(self, at_us: int) -> KeyReport:
        """The account so far."""
        return KeyReport(
            key=self.name,
            calls=self._calls,
            broken=self._broken,
            refused={refusal.value: times for refusal, times in self._refused.items() if times},
            strikes=self.strikes,
            bans=self._bans,
            banned=self._is_banned(at_us),
            most_in_a_second=self._most_in_a_second,
            seconds_over=self._seconds_over,
            uncertain=self._uncertain.count,
            uncertain_windows=list(self._uncertain.samples),
            most_in_a_clock_second=self._most_in_a_clock_second,
            clock_seconds_over=self._clock_seconds_over,
            most_in_a_day=self._most_in_a_day,
            most_in_a_clock_day=self._most_in_a_clock_day,
            calls_of_the_day=self._day.count(at_us),
            days_over=self._refused[Refusal.DAY],
        )


class KeyAccounts:
    """The keys that are known, and the account of each."""

    def __init__(self, seed: int, limits: LimitSettings) -> None:
        self.keys = [_key(seed, number) for number in range(limits.keys)]
        self.all = [KeyAccount(f"key-{number}", limits) for number in range(limits.keys)]
        self.by_key = dict(zip((key.encode() for key in self.keys), self.all, strict=True))


def _key(seed: int, number: int) -> str:
    return "game_" + blake2b(b"key %d %d" % (seed, number), digest_size=16).hexdigest()
