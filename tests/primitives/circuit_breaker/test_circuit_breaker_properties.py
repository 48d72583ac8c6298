"""The breaker against a model that is too plain to be wrong."""

import asyncio
import itertools
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from tests.examples import examples

from tidegate.core.clock import ManualClock
from tidegate.core.errors import CircuitOpen, NotFound, ValkeyUnavailable
from tidegate.primitives.circuit_breaker import CircuitBreaker, CircuitBreakerSettings

Ending = Literal["success", "failure", "other error", "cancelled"]
ERRORS: dict[Ending, BaseException | None] = {
    "success": None,
    "failure": ValkeyUnavailable("down"),
    "other error": NotFound("run", 7),
    "cancelled": asyncio.CancelledError(),
}
COUNTS_AS: dict[Ending, bool | None] = {"success": False, "failure": True, "other error": False, "cancelled": None}


@dataclass
class Call:
    """One call as the model sees it; it belongs to a phase, and counts only there."""

    phase: int
    scope: AbstractContextManager[None]
    began_ms: int
    ended: Ending | None = None


@dataclass
class Model:
    """Remembers everything and derives the rest."""

    window: int
    trials: int
    rate: Fraction
    pause_ms: int
    state: str = "closed"
    phase: int = 0
    since_ms: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    endings: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])

    def outcomes(self) -> list[bool]:
        return [failed for phase, failed in self.endings if phase == self.phase]

    def under_way(self) -> int:
        return sum(call.phase == self.phase and call.ended is None for call in self.calls)

    def retry_at_ms(self) -> int:
        """When a call that is refused now may begin: a pause after the state changed or the last trial began."""
        trials = [call.began_ms for call in self.calls if call.phase == self.phase]
        return max([self.since_ms, *trials]) + self.pause_ms

    def move(self, state: str, now_ms: int) -> None:
        self.state, self.since_ms = state, now_ms
        self.phase += 1

    def is_bad(self, outcomes: list[bool]) -> bool:
        return Fraction(sum(outcomes), len(outcomes)) >= self.rate

    def may_begin(self, now_ms: int) -> bool:
        """Whether a call may begin now, with the change of state that this brings."""
        if self.state == "closed":
            return True
        is_pause_over = now_ms >= self.retry_at_ms()
        is_full = self.state == "trying" and self.under_way() + len(self.outcomes()) >= self.trials
        if is_pause_over and (self.state == "open" or is_full):
            self.move("trying", now_ms)
            return True
        return self.state == "trying" and not is_full

    def end(self, call: Call, ending: Ending, now_ms: int) -> None:
        call.ended = ending
        failed = COUNTS_AS[ending]
        if failed is None or call.phase != self.phase:
            return
        self.endings.append((self.phase, failed))
        if self.state == "closed":
            last = self.outcomes()[-self.window :]
            if len(last) == self.window and self.is_bad(last):
                self.move("open", now_ms)
        elif len(verdicts := self.possible_verdicts()) == 1:
            self.move("open" if verdicts.pop() else "closed", now_ms)

    def possible_verdicts(self) -> set[bool]:
        """How the trials could still turn out, by trying every way in which the missing ones could end."""
        known = self.outcomes()
        rests = itertools.product([True, False], repeat=self.trials - len(known))
        return {self.is_bad([*known, *rest]) for rest in rests}


class BreakerMachine(RuleBasedStateMachine):
    """Calls begin, overlap and end in every order while time goes by."""

    calls = Bundle[Call]("calls")

    @initialize(
        window=st.integers(1, 6),
        trials=st.integers(1, 5),
        percent=st.sampled_from([1, 20, 33, 50, 70, 100]),
        pause_ms=st.sampled_from([1, 1_000, 30_000]),
    )
    def begin_closed(self, window: int, trials: int, percent: int, pause_ms: int) -> None:
        self.clock = ManualClock()
        self.breaker = CircuitBreaker(
            "valkey",
            CircuitBreakerSettings(
                window=window,
                trials=trials,
                failure_rate=percent / 100,
                open_for=timedelta(milliseconds=pause_ms),
            ),
            clock=self.clock,
            elapsed_ms=lambda: float(self.clock.pinned_ms),
        )
        self.model = Model(window, trials, Fraction(percent, 100), pause_ms)

    @rule(target=calls)
    def begin(self) -> Call | MultipleResults[Call]:
        now_ms = self.clock.pinned_ms
        may_begin = self.model.may_begin(now_ms)
        scope = self.breaker.attempt()
        if may_begin:
            scope.__enter__()
            call = Call(self.model.phase, scope, now_ms)
            self.model.calls.append(call)
            return call
        with pytest.raises(CircuitOpen) as refused:
            scope.__enter__()
        assert refused.value.retry_at_ms == self.model.retry_at_ms()
        return multiple()

    @rule(call=consumes(calls), ending=st.sampled_from(list(ERRORS)))
    def end(self, call: Call, ending: Ending) -> None:
        error = ERRORS[ending]
        if error is None:
            call.scope.__exit__(None, None, None)
        else:
            assert not call.scope.__exit__(type(error), error, None), "an error must reach its caller"
        self.model.end(call, ending, self.clock.pinned_ms)

    @rule(endings=st.lists(st.sampled_from(list(ERRORS)), min_size=1, max_size=6))
    def calls_in_a_row(self, endings: list[Ending]) -> None:
        for ending in endings:
            if isinstance(call := self.begin(), Call):
                self.end(call, ending)

    @rule(ms=st.sampled_from([1, 500, 999, 1_000, 30_000]))
    def time_goes_by(self, ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=ms))

    @rule(early_ms=st.sampled_from([0, 0, 1]))
    def the_pause_goes_by(self, early_ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=self.model.pause_ms - early_ms))

    @rule(target=calls)
    def a_call_begins_after_a_pause_without_any(self) -> Call | MultipleResults[Call]:
        """No call is refused for ever: neither by trials that hang nor by cancelled ones."""
        self.the_pause_goes_by(early_ms=0)
        call = self.begin()
        assert isinstance(call, Call), "a pause after the last call began, the next call may begin"
        return call

    @invariant()
    def both_are_in_the_same_state(self) -> None:
        assert self.breaker.state == self.model.state


TestBreakerAgainstItsModel = BreakerMachine.TestCase
TestBreakerAgainstItsModel.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
