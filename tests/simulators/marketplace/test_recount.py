"""The figures of the book are those of a slow recount, whatever happens."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as some

from tests.examples import examples
from tidegate_simulators.marketplace import PauseScope, Politeness, RobotsGroup, RobotsSettings
from tidegate_simulators.marketplace.config import LimitSettings
from tidegate_simulators.marketplace.identities import Caller
from tidegate_simulators.marketplace.ledger import Ledger
from tidegate_simulators.marketplace.pauses import Pauses
from tidegate_simulators.marketplace.politeness_record import PolitenessRecord
from tidegate_simulators.marketplace.rates import rate_of_host, rate_of_identity
from tidegate_simulators.marketplace.robots import Robots

SECOND_US = 1_000_000
_calls = some.tuples(some.sampled_from([0, 1, 999_999, 1_000_000, 1_000_001, 2_500_000]), some.integers(0, 1))
_pauses = some.tuples(some.integers(0, 3), some.integers(0, 400_000))
"""How long is asked for, and how late the answer goes out."""


@settings(max_examples=examples(200), deadline=None)
@given(
    events=some.lists(some.tuples(_calls, some.none() | _pauses), max_size=25),
    delay_s=some.sampled_from([0, 1, 2]),
    crawl_delay_s=some.sampled_from([None, 0.5, 1.5]),
    leeway_ms=some.sampled_from([0, 1]),
)
def test_early_calls_equal_those_found_by_a_recount(
    events: list[tuple[tuple[int, int], tuple[int, int] | None]],
    delay_s: float,
    crawl_delay_s: float | None,
    leeway_ms: float,
):
    limits, robots = LimitSettings(), Robots(RobotsSettings(groups=(RobotsGroup(crawl_delay_s=crawl_delay_s),)))
    politeness = Politeness(delay_s=delay_s, leeway_ms=leeway_ms, robots_required=False)
    book = PolitenessRecord(0, Ledger(), rate_of_host(limits), politeness, arrivals_kept=1_000)
    callers = [Caller(f"one-{number}", [rate_of_identity(limits)], is_known=True) for number in range(2)]
    least_us, leeway_us = max(delay_s, crawl_delay_s or 0) * SECOND_US, leeway_ms * 1_000
    now_us, came, told = 0, list[int](), list[tuple[int, int]]()
    too_soon = ignored = 0
    for (passed_us, who), pause in events:
        now_us += passed_us
        too_soon += bool(came) and now_us - came[-1] < least_us - leeway_us
        ignored += any(begin + leeway_us < now_us < end - leeway_us for begin, end in _united(told))
        came.append(now_us)
        book.arrive(callers[who], b"agent", b"/", robots, now_us, is_whole=True)
        book.end(callers[who])
        if pause is not None:
            wait_s, late_us = pause
            told.append((now_us + late_us, now_us + late_us + wait_s * SECOND_US))
            book.announce_pause(callers[who], now_us + late_us, wait_s, PauseScope.IDENTITY)

    report = book.report("", robots)
    assert list(book.arrivals) == came
    assert (report.violations.get("too_soon", 0), report.violations.get("pause_ignored", 0)) == (too_soon, ignored)
    gaps = [later - earlier for earlier, later in pairwise(came)]
    assert report.smallest_gap_ms == (min(gaps) / 1_000 if gaps else None)


def _united(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that overlap, as one."""
    united: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if united and begin < united[-1][1]:
            united[-1] = united[-1][0], max(end, united[-1][1])
        else:
            united.append((begin, end))
    return united


def test_two_separate_pauses_stay_separate():
    pauses = Pauses()
    pauses.add(10, 20)
    pauses.add(30, 50)
    assert [pauses.left_us(at_us, 0) for at_us in (10, 15, 20, 25, 31, 50)] == [0, 5, 0, 0, 19, 0]


def test_a_tolerance_applies_at_both_ends_of_a_pause():
    pauses = Pauses()
    pauses.add(10, 20)
    assert [pauses.left_us(at_us, 2) for at_us in (12, 13, 17, 18)] == [0, 7, 3, 0]


def test_a_log_keeps_a_limited_number_of_arrivals_and_counts_all():
    limits, robots = LimitSettings(), Robots(RobotsSettings())
    book = PolitenessRecord(0, Ledger(), rate_of_host(limits), Politeness(delay_s=1), arrivals_kept=3)
    caller = Caller("one", [rate_of_identity(limits)], is_known=True)
    for second in (0, 2, 4, 6, 6.5):
        book.arrive(caller, b"agent", b"/robots.txt", robots, round(second * SECOND_US), is_whole=True)
        book.end(caller)
    report = book.report("", robots)
    assert (len(book.arrivals), report.calls, report.smallest_gap_ms) == (3, 5, 500)
    assert report.violations == {"too_soon": 1}
