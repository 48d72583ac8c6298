"""Timers against a dictionary: whatever is done in whatever order, each fires once, at its time, in order."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.examples import examples
from tests.primitives.timers.test_timers import messages
from tidegate.core.clock import ManualClock, from_ms, to_ms
from tidegate.core.ids import new_id
from tidegate.primitives.timers import Timer, Timers, TimerSettings, TimersStatus
from tidegate.storage.valkey import Valkey

T = TypeVar("T")

ids = st.sampled_from(["a", "b", "c", "d", "e"])
spans = st.integers(0, 50).map(lambda ms: timedelta(milliseconds=ms))
offsets = st.integers(-30, 50).map(lambda ms: timedelta(milliseconds=ms))
payloads = st.binary(max_size=20)
AT_ONCE = 2


class TimersMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.valkey = self.run(Valkey.connect(self.url))
        self.clock = ManualClock()
        unit = self.valkey.unit(new_id())
        self.timers = Timers(
            self.valkey, unit, unit.key("s"), clock=self.clock, settings=TimerSettings(promoted_at_once=AT_ONCE)
        )
        self.waiting: dict[str, tuple[int, bytes]] = {}
        self.fired: list[tuple[bytes, bytes, bytes]] = []
        self.keeper_sleeps_until: int | None = None
        self.keeper_is_rung = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @property
    def now_ms(self) -> int:
        return to_ms(self.clock.now())

    def earliest_ms(self) -> int | None:
        return min((due for due, _ in self.waiting.values()), default=None)

    @rule(batch=st.lists(st.tuples(ids, spans, payloads), max_size=4))
    def schedule_delays(self, batch: list[tuple[str, timedelta, bytes]]) -> None:
        added = self.run(self.timers.schedule_many([Timer(*each) for each in batch]))
        assert added == len({timer_id for timer_id, _, _ in batch} - set(self.waiting))
        for timer_id, span, payload in batch:
            self.waiting[timer_id] = (self.now_ms + round(span.total_seconds() * 1000), payload)

    @rule(timer_id=ids, offset=offsets, payload=payloads)
    def schedule_a_moment(self, timer_id: str, offset: timedelta, payload: bytes) -> None:
        moment = self.clock.now() + offset
        self.run(self.timers.schedule(timer_id, moment, payload))
        self.waiting[timer_id] = (to_ms(moment), payload)

    @rule(timer_id=ids, span=spans)
    def reschedule(self, timer_id: str, span: timedelta) -> None:
        assert self.run(self.timers.reschedule(timer_id, span)) == (timer_id in self.waiting)
        if timer_id in self.waiting:
            _, payload = self.waiting[timer_id]
            self.waiting[timer_id] = (self.now_ms + round(span.total_seconds() * 1000), payload)

    @rule(chosen=st.lists(ids, max_size=3, unique=True))
    def cancel(self, chosen: list[str]) -> None:
        assert self.run(self.timers.cancel(*chosen)) == len(set(chosen) & set(self.waiting))
        for timer_id in chosen:
            self.waiting.pop(timer_id, None)

    @rule(span=spans)
    def time_passes(self, span: timedelta) -> None:
        self.clock.advance(span)

    @rule()
    def fire(self) -> None:
        due = sorted((due, timer_id) for timer_id, (due, _) in self.waiting.items() if due <= self.now_ms)
        next_in_ms = self.run(self.timers.fire())
        for due_ms, timer_id in due[:AT_ONCE]:
            _, payload = self.waiting.pop(timer_id)
            self.fired.append((timer_id.encode(), str(due_ms).encode(), payload))
        earliest = self.earliest_ms()
        assert next_in_ms == (None if earliest is None else max(0, earliest - self.now_ms))
        self.keeper_sleeps_until = None if next_in_ms is None else self.now_ms + next_in_ms
        self.keeper_is_rung = False

    @invariant()
    def the_keeper_never_sleeps_too_long(self) -> None:
        """It is awake, or has been rung, or sleeps until a time no later than the first due time."""
        token = self.run(self.valkey.execute("LPOP", self.timers.keys.wake))
        self.keeper_is_rung = self.keeper_is_rung or token is not None
        earliest = self.earliest_ms()
        if earliest is not None and not self.keeper_is_rung:
            assert self.keeper_sleeps_until is not None
            assert self.keeper_sleeps_until <= max(earliest, self.now_ms)

    @invariant()
    def server_and_model_agree(self) -> None:
        earliest = self.earliest_ms()
        expected = TimersStatus(len(self.waiting), None if earliest is None else from_ms(earliest))
        assert self.run(self.timers.status()) == expected
        entries = self.run(messages(self.valkey, self.timers))
        assert [(entry[b"timer"], entry[b"due_ms"], entry[b"payload"]) for entry in entries] == self.fired

    def teardown(self) -> None:
        self.run(self.valkey.close())
        self.runner.close()


def test_timers_behave_like_a_dictionary_of_due_times(embedded_url: str):
    class Machine(TimersMachine):
        url = embedded_url

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
    )
