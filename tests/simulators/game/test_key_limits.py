"""Limits hold in any window, against a recount of everything that ever came."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from tests.examples import examples
from tidegate_simulators import sliding
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.game import LimitSettings
from tidegate_simulators.game.key_limits import KeyAccount, Refusal, Verdict
from tidegate_simulators.sliding import SlidingLog

SECOND_US, DAY_US = 1_000_000, 10_000_000
# Many at once, many exactly one window apart, and some after days.
PAUSES = some.lists(
    some.one_of(
        some.integers(0, 300_000),
        some.sampled_from([0, 1, SECOND_US - 1, SECOND_US, SECOND_US + 1, DAY_US, 5_000_000_000]),
    ),
    max_size=80,
)


def moments(pauses: list[int]) -> list[int]:
    at_us, found = 0, list[int]()
    for pause in pauses:
        at_us += pause
        found.append(at_us)
    return found


@example(pauses=[0, 5_000_000_000, 1], chunk=7, length_us=86_400 * SECOND_US)
@given(pauses=PAUSES, chunk=some.integers(1, 7), length_us=some.sampled_from([SECOND_US, DAY_US, 86_400 * SECOND_US]))
@settings(max_examples=examples(30))
def test_a_sliding_count_equals_a_slow_recount(pauses: list[int], chunk: int, length_us: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding, "_CHUNK", chunk)
        log, told = SlidingLog(length_us), list[int]()
        for at_us in moments(pauses):
            assert log.count(at_us) == sum(one > at_us - length_us for one in told)
            told.append(at_us)
            inside = [one for one in told if one > at_us - length_us]
            assert log.add(at_us) == log.count(at_us) == len(inside)
            assert log.leaves_us == inside[0] + length_us


def test_calls_outside_the_window_use_no_memory():
    log = SlidingLog(SECOND_US)
    for at_us in range(0, 500 * SECOND_US, 1_000):
        log.add(at_us)

    assert log.size == 1_000
    assert len(log._chunks) <= 2  # pyright: ignore[reportPrivateUsage]


class Model:
    """The rules, told the slow way."""

    def __init__(self, limits: LimitSettings) -> None:
        self.limits = limits
        self.arrived: list[int] = []
        self.admitted: list[int] = []
        self.strikes = self.broken = self.seconds_over = self.most_in_a_second = self.most_in_a_day = 0
        self.banned_until = -1

    def arrive(self, at_us: int) -> Verdict | None:
        limits = self.limits
        self.arrived.append(at_us)
        at_once = sum(one > at_us - SECOND_US for one in self.arrived)
        self.most_in_a_second = max(self.most_in_a_second, at_once)
        self.seconds_over += at_once > limits.per_second
        verdict = self.judge(at_us)
        self.broken += verdict is not None or at_once > limits.per_second
        if verdict is None:
            self.admitted.append(at_us)
            self.most_in_a_day = max(self.most_in_a_day, sum(one > at_us - DAY_US for one in self.admitted))
        return verdict

    def judge(self, at_us: int) -> Verdict | None:
        if self.banned_until >= 0:
            if at_us < self.banned_until:
                return Verdict(Refusal.BANNED, self.banned_until - at_us)
            self.banned_until, self.strikes = -1, 0
        for refusal, length_us, limit in (
            (Refusal.DAY, DAY_US, self.limits.per_day),
            (Refusal.SECOND, SECOND_US, self.limits.per_second),
        ):
            inside = [one for one in self.admitted if one > at_us - length_us]
            if len(inside) >= limit:
                self.strikes += 1
                if self.strikes == self.limits.strikes_until_ban:
                    self.banned_until = at_us + round(self.limits.ban_s * 1e6)
                return Verdict(refusal, inside[0] + length_us - at_us)
        return None


@given(
    pauses=PAUSES,
    per_second=some.integers(1, 6),
    per_day=some.integers(3, 25),
    strikes=some.one_of(some.none(), some.integers(1, 5)),
)
@settings(max_examples=examples(40))
def test_a_key_is_judged_like_by_a_full_recount(pauses: list[int], per_second: int, per_day: int, strikes: int | None):
    limits = LimitSettings(
        per_second=per_second, per_day=per_day, day_s=DAY_US / 1e6, strikes_until_ban=strikes, ban_s=2.5
    )
    account, model, at_us = KeyAccount("key", limits), Model(limits), 0
    for at_us in moments(pauses):
        assert account.arrive(at_us) == model.arrive(at_us)

    report = account.report(at_us)
    assert (report.calls, report.broken, report.seconds_over) == (len(pauses), model.broken, model.seconds_over)
    assert (report.most_in_a_second, report.most_in_a_day) == (model.most_in_a_second, model.most_in_a_day)
    by_clock = [
        sum(one // SECOND_US == second for one in model.arrived) for second in {m // SECOND_US for m in model.arrived}
    ]
    assert report.most_in_a_clock_second == max(by_clock, default=0)
    assert report.clock_seconds_over == sum(count > per_second for count in by_clock)


@given(pauses=PAUSES, per_second=some.integers(1, 6))
@settings(max_examples=examples(30))
def test_a_client_that_waits_as_long_as_told_is_admitted(pauses: list[int], per_second: int):
    account, at_us = KeyAccount("key", LimitSettings(per_second=per_second, per_day=7, day_s=10, ban_s=1)), 0
    for pause in pauses:
        at_us += pause
        verdict = account.arrive(at_us)
        if verdict is not None:
            at_us += verdict.retry_after_s * 1_000_000
            assert account.arrive(at_us) is None


@given(
    pauses=some.lists(some.integers(1, 400_000), max_size=60),
    stalls=some.lists(some.tuples(some.integers(0, 6_000_000), some.integers(30_000, 3_000_000)), max_size=4),
    per_second=some.integers(1, 6),
)
@settings(max_examples=examples(60))
def test_a_pause_of_the_simulator_causes_no_breach_for_clients_within_the_limit(
    pauses: list[int], stalls: list[tuple[int, int]], per_second: int
):
    """Calls come at times that keep the limit; what comes during a stall is read at its end."""
    account, came = KeyAccount("key", LimitSettings(per_second=per_second)), list[int]()
    for pause in pauses:
        at_us = (came[-1] if came else 0) + pause
        came.append(max(at_us, came[-per_second] + SECOND_US) if len(came) >= per_second else at_us)
    read = list[tuple[int, int]]()
    for at_us in came:
        begin, end = at_us, at_us
        for start, length in sorted(stalls):
            if start <= end < start + length:
                begin, end = min(begin, start), start + length
        read.append((end, end - begin))

    assert [account.arrive(at_us, delay_us) for at_us, delay_us in sorted(read)] == [None] * len(read)
    report = account.report(10**9)
    assert (report.broken, report.seconds_over, report.most_in_a_second <= per_second) == (0, 0, True)


@pytest.mark.parametrize("delay_us", [0, 900_000])
def test_calls_that_arrived_within_one_second_are_a_breach_although_they_were_read_late(delay_us: int):
    account = KeyAccount("key", LimitSettings(per_second=10, strikes_until_ban=None))
    refused = [account.arrive(5_000_000, delay_us) for _ in range(15)]

    report = account.report(5_000_000)
    assert (sum(each is not None for each in refused), report.broken, report.uncertain) == (5, 5, 0)


def test_more_calls_than_any_second_of_a_pause_allows_are_a_breach():
    """In 2.5 s at most 30 calls can have kept a limit of 10."""
    account = KeyAccount("key", LimitSettings(per_second=10, strikes_until_ban=None))
    refused = [account.arrive(5_000_000, 2_500_000) for _ in range(40)]

    report = account.report(5_000_000)
    assert (sum(each is not None for each in refused), report.broken, report.uncertain) == (10, 10, 1)
    (window,) = report.uncertain_windows
    assert (window.read, window.certain, window.limit, window.stall_ms) == (30, 0, 10, 2_500)


def test_a_limit_holds_in_any_second_and_not_only_in_clock_seconds():
    """Ten at the end of one second of the clock and ten at the beginning of the next: twenty within 200 ms."""
    account = KeyAccount("key", LimitSettings(per_second=10))
    verdicts = [account.arrive(at_us) for at_us in (*[900_000] * 10, *[1_100_000] * 10)]

    assert [verdict is None for verdict in verdicts] == [True] * 10 + [False] * 10
    report = account.report(1_100_000)
    assert (report.most_in_a_second, report.seconds_over) == (20, 10)
    assert (report.most_in_a_clock_second, report.clock_seconds_over) == (10, 0), "which a coarser counter overlooks"


def test_calls_exactly_one_second_apart_are_in_different_windows():
    account = KeyAccount("key", LimitSettings(per_second=1))

    arrivals_us = (0, 1_000_000, 1_999_999, 2_000_000)
    assert [account.arrive(at_us) is None for at_us in arrivals_us] == [
        True,
        True,
        False,
        True,
    ]


def test_resetting_the_counts_does_not_reset_the_windows():
    account = KeyAccount("key", LimitSettings(per_second=2))
    account.arrive(0)
    account.arrive(0)
    account.clear()

    assert account.arrive(1) is not None
    assert account.report(1).calls == 1


def test_limits_of_zero_are_refused():
    for name in ("per_second", "per_day", "second_s", "day_s", "ban_s", "strikes_until_ban", "keys"):
        with pytest.raises(InvalidArgument, match=f"{name} is 0"):
            LimitSettings(**{name: 0})
