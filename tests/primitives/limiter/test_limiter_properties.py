"""Whatever is asked, by whomever, whenever: a plain list of what was granted never breaks a rule."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.examples import examples
from tests.primitives.limiter.conftest import LOW_ONLY, SECOND, ms, rules
from tidegate.core.clock import ManualClock, milliseconds
from tidegate.core.ids import new_id
from tidegate.primitives.limiter import Limit, Limiter, Priority, Rate
from tidegate.storage.valkey import Valkey

T = TypeVar("T")

HIGH, LOW = Priority.HIGH, Priority.LOW
SECONDLY = Limit(name="second", permits=20, window=SECOND)
LOW_CAP = Limit(name="low", permits=12, window=SECOND, priorities=LOW_ONLY)
DAILY = Limit(name="day", permits=45, window=timedelta(days=1))
SUSTAINED = Rate(name="sustained", per_second=60, burst=15)
SETTINGS = rules(SECONDLY, LOW_CAP, DAILY, SUSTAINED)
SLACK_MS = milliseconds(SETTINGS.use_by + SETTINGS.guard)

moments = st.one_of(
    st.integers(0, 80).map(ms),
    st.sampled_from([1000, 1050, 1069, 1070, 1071, 1072]).map(ms),
    st.integers(0, 1300).map(ms),
    st.sampled_from([timedelta(hours=7), timedelta(hours=23, minutes=59)]),
)


@dataclass(frozen=True)
class Granted:
    """Units given at a moment of true time, which no clock step changes."""

    at_ms: int
    units: int
    priority: Priority


def most_within(granted: list[Granted], span_ms: int) -> int:
    """The most units in any stretch of this length, both ends included."""
    return max(
        (sum(each.units for each in granted if 0 <= each.at_ms - first.at_ms <= span_ms) for first in granted),
        default=0,
    )


class LimiterMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.valkey = self.run(Valkey.connect(self.url))
        self.clock = ManualClock()
        unit = self.valkey.unit(new_id())
        self.limiters = [Limiter(self.valkey, unit, self.clock, SETTINGS) for _ in range(3)]
        self.true_ms = 0
        self.granted: list[Granted] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @rule(process=st.integers(0, 2), most=st.integers(1, 40), priority=st.sampled_from(Priority))
    def take(self, process: int, most: int, priority: Priority) -> None:
        before = self.run(self.limiters[0].status())
        batch = self.run(self.limiters[process].take(most, priority=priority))
        if batch.grants:
            self.granted.append(Granted(self.true_ms, len(batch.grants), priority))
        else:
            assert self.run(self.limiters[0].status()).usage == before.usage, "a refusal costs nothing"
        assert (batch.wait == timedelta(0)) == (len(batch.grants) == most)
        self.check()

    @rule(process=st.integers(0, 2), priority=st.sampled_from(Priority))
    def wait_as_told(self, process: int, priority: Priority) -> None:
        """Alone and patient, everybody gets a permit: what others wanted is forgotten once they stay away."""
        batch = self.run(self.limiters[process].take(1, priority=priority))
        for _ in range(100):
            if batch.grants:
                self.granted.append(Granted(self.true_ms, 1, priority))
                self.check()
                return
            self.time_passes(batch.wait)
            batch = self.run(self.limiters[process].take(1, priority=priority))
        raise AssertionError("refused a hundred times in a row")

    @rule(span=moments)
    def time_passes(self, span: timedelta) -> None:
        self.clock.advance(span)
        self.true_ms += milliseconds(span)

    @rule(span=st.integers(1, 3000).map(ms))
    def the_clock_is_set_back(self, span: timedelta) -> None:
        self.clock.advance(-span)

    def check(self) -> None:
        low = [each for each in self.granted if each.priority is LOW]
        assert most_within(self.granted, 1000 + SLACK_MS) <= SECONDLY.permits
        assert most_within(low, 1000 + SLACK_MS) <= LOW_CAP.permits
        assert most_within(self.granted, 86_400_000 + SLACK_MS) <= DAILY.permits
        for span_ms in (0, 100, 1000, 5000):
            assert most_within(self.granted, span_ms) <= SUSTAINED.burst + SUSTAINED.per_second * span_ms / 1000 + 1e-3

    def teardown(self) -> None:
        self.run(self.valkey.close())
        self.runner.close()


def test_no_interval_exceeds_any_rule(valkey: Valkey):
    class Machine(LimiterMachine):
        url = valkey.url

    # Not shrunk: that takes minutes against a real server, longer than a test may, and forty steps can be read.
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(25), stateful_step_count=40, deadline=None, phases=(Phase.reuse, Phase.generate)
        ),
    )
