"""Records the calls at one host: when each arrived, and which rules it broke, by the simulator's own clock."""

from array import array
from collections import Counter

from tidegate_simulators.marketplace.config import PauseScope, Politeness
from tidegate_simulators.marketplace.identities import Caller
from tidegate_simulators.marketplace.ledger import HostReport, Ledger, Rule, Violation
from tidegate_simulators.marketplace.pauses import Pauses
from tidegate_simulators.marketplace.rates import Rate
from tidegate_simulators.marketplace.robots import PATH, Robots
from tidegate_simulators.stalls import UncertainWindow

_US = 1_000_000


class PolitenessRecord:
    """The record of one host. Times are in µs since the start, and never decrease.

    A crawler is judged by the robots.txt that it last read here, not by a later one; before it has read
    one, by the current one.
    """

    def __init__(self, host: int, ledger: Ledger, rate: Rate, politeness: Politeness, arrivals_kept: int) -> None:
        self.host, self._ledger, self._rate, self._kept = host, ledger, rate, arrivals_kept
        self.politeness = politeness
        self._last_us: int | None = None
        self._last_delay_us = 0
        """How much earlier the last call may have come."""
        self._pauses = Pauses()
        self._read: Robots | None = None
        self._read_us = 0
        self._under_way = 0
        self.clear()

    def clear(self) -> None:
        """Reset the counts; announcements to crawlers are kept."""
        self._calls = self._by_banned = self._most_at_once = self._robots_read = self._pauses_announced = 0
        self._smallest_us: int | None = None
        self.violations = Counter[str]()
        self.arrivals = array("q")
        """When each call came, as many as are kept."""

    def arrive(
        self,
        caller: Caller,
        agent: bytes,
        target: bytes,
        robots: Robots,
        at_us: int,
        *,
        is_whole: bool,
        delay_us: int = 0,
    ) -> None:
        """A call is read that came at most `delay_us` ago; `is_whole`: what it says about itself belongs together.

        What it breaks only by the time of reading is uncertain, and no violation.
        """
        self._calls += 1
        if len(self.arrivals) < self._kept:
            self.arrivals.append(at_us)
        binding = self._read or robots
        broken = self._judge_time(caller, binding.delay_us(agent), at_us, delay_us)
        is_robots = target.partition(b"?")[0] == PATH  # also the target of a redirect
        if not is_robots and self.politeness.robots_required and not self._has_read(at_us):
            broken.append((Rule.ROBOTS, None))
        if not binding.allows(agent, target):
            broken.append((Rule.DISALLOWED, None))
        if self._knows_of_ban(caller, at_us, delay_us):
            broken.append((Rule.BANNED, None))
        if caller.under_way >= self.politeness.at_once_per_identity:
            broken.append((Rule.AT_ONCE, None))
        if not is_whole:
            broken.append((Rule.MISMATCHED, None))
        self._begin(caller, at_us, delay_us)
        for rule, short_by_us in broken:
            self._violated(rule, caller, target, at_us, short_by_us)

    def end(self, caller: Caller) -> None:
        """The answer to a call is sent, or never will be."""
        caller.under_way -= 1
        self._under_way -= 1

    def note_robots(self, robots: Robots, at_us: int) -> None:
        """robots.txt was answered. A client that cannot get it uses the copy it has."""
        self._robots_read += 1
        if robots.settings.status < 500 or self._read is None:
            self._read, self._read_us = robots, at_us

    def announce_pause(self, caller: Caller, from_us: int, wait_s: int, scope: PauseScope) -> None:
        """An answer sent at this time asks the caller to wait."""
        self._pauses_announced += 1
        binds_all = scope is PauseScope.HOST or self.politeness.pauses_bind is PauseScope.HOST
        pauses = self._pauses if binds_all else caller.pauses[self.host]
        pauses.add(from_us, from_us + wait_s * _US)

    def report(self, url: str, robots: Robots) -> HostReport:
        """The account so far."""
        least_us = max(round(self.politeness.delay_s * _US), (self._read or robots).delay_us(b""))
        return HostReport(
            host=self.host,
            url=url,
            calls=self._calls,
            smallest_gap_ms=None if self._smallest_us is None else self._smallest_us / 1_000,
            least_gap_ms=least_us / 1_000,
            violations=dict(self.violations),
            by_banned=self._by_banned,
            under_way=self._under_way,
            most_at_once=self._most_at_once,
            robots_read=self._robots_read,
            pauses_announced=self._pauses_announced,
        )

    def _judge_time(
        self, caller: Caller, crawl_delay_us: int, at_us: int, delay_us: int
    ) -> list[tuple[Rule, int | None]]:
        """What a call breaks by coming now, and by how much."""
        broken: list[tuple[Rule, int | None]] = []
        leeway_us = round(self.politeness.leeway_ms * 1_000)
        if self._last_us is not None:
            gap_us = at_us - self._last_us
            least_us = max(round(self.politeness.delay_s * _US), crawl_delay_us)
            longest_us = gap_us + self._last_delay_us
            if self._smallest_us is None or longest_us < self._smallest_us:
                self._smallest_us = longest_us
            if longest_us < least_us - leeway_us:
                broken.append((Rule.TOO_SOON, least_us - gap_us))
            elif gap_us < least_us - leeway_us:
                self._unsure(Rule.TOO_SOON, caller, at_us, self._last_delay_us, gap_us=(gap_us, longest_us, least_us))
        pauses = self._pauses, caller.pauses[self.host]
        was_paused = any(each.left_us(at_us - delay_us, leeway_us) for each in pauses)
        left_us = max(each.left_us(at_us, leeway_us) for each in pauses)
        if left_us and was_paused:
            broken.append((Rule.PAUSE, left_us))
        elif left_us:
            self._unsure(Rule.PAUSE, caller, at_us, delay_us, gap_us=(left_us, 0, 0))
        return broken

    def _unsure(self, rule: Rule, caller: Caller, at_us: int, stall_us: int, *, gap_us: tuple[int, int, int]) -> None:
        """A call broke a rule of time, unless it or the one before came earlier than it was read."""
        read, certain, limit = (each / 1_000 for each in gap_us)
        window = UncertainWindow(
            rule, caller.name, at_us / _US, read=read, certain=certain, limit=limit, stall_ms=stall_us / 1_000
        )
        self._ledger.uncertain.add(window, 0)

    def _has_read(self, at_us: int) -> bool:
        return self._read is not None and at_us - self._read_us <= self.politeness.robots_max_age_s * _US

    def _knows_of_ban(self, caller: Caller, at_us: int, delay_us: int) -> bool:
        """Whether a ban is in force that was announced with its end."""
        banned = [rate for rate in (self._rate, caller.rates[self.host]) if rate.banned_for(at_us)]
        self._by_banned += bool(banned)
        since_us = at_us - delay_us - round(self.politeness.leeway_ms * 1_000)
        return any(rate.told_us is not None and since_us > rate.told_us for rate in banned)

    def _begin(self, caller: Caller, at_us: int, delay_us: int) -> None:
        self._last_us, self._last_delay_us = at_us, delay_us
        self._under_way += 1
        caller.under_way += 1
        caller.calls += 1
        self._most_at_once = max(self._most_at_once, self._under_way)
        caller.most_at_once = max(caller.most_at_once, caller.under_way)

    def _violated(self, rule: Rule, caller: Caller, target: bytes, at_us: int, short_by_us: int | None) -> None:
        self.violations[rule.value] += 1
        short_by_ms = None if short_by_us is None else short_by_us / 1_000
        shown = target.decode("latin-1")[:200]
        self._ledger.show(Violation(rule, self.host, at_us / _US, caller.name, shown, short_by_ms))
