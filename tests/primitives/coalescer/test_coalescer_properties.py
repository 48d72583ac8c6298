"""Whatever is asked in whatever order, under whatever clock: the same as in a plain model."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.examples import examples
from tidegate.core.clock import ManualClock
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import (
    AlreadyProcessing,
    Coalescer,
    CoalescerKeys,
    CoalescerSettings,
    Published,
    Upgraded,
)
from tidegate.storage.valkey import Valkey

SETTINGS = CoalescerSettings(high_lock=timedelta(milliseconds=30), low_lock=timedelta(milliseconds=60))
LASTS_MS = {Priority.HIGH: 30, Priority.LOW: 60}
SUBJECTS = st.sampled_from(["ada", "bob", "cem"])
STEPS_MS = st.one_of(st.integers(0, 70), st.sampled_from([29, 30, 31, 59, 60, 61]))


@dataclass
class Lock:
    version: int
    token: str
    priority: Priority
    kind: type[Published | Upgraded]
    until_ms: int


class CoalescerMachine(RuleBasedStateMachine):
    """Locks as a dict, versions as the highest ever given, and those that were confirmed."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.valkey = self.do(Valkey.connect(self.url))
        self.do(self.valkey.execute("FLUSHALL"))
        self.coalescer = Coalescer(self.valkey, SETTINGS, self.clock)
        self.locks: dict[str, Lock] = {}
        self.current: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.published: dict[str, int] = {}
        self.lost_data = False

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.valkey.close())
        self.runner.close()

    @rule(subject=SUBJECTS, priority=st.sampled_from(Priority), token=st.sampled_from("abc"), knows=st.booleans())
    def request(self, subject: str, priority: Priority, token: str, knows: bool) -> None:
        known = self.highest.get(subject, 0) if knows or self.lost_data else 0
        outcome = self.do(self.coalescer.request(subject, priority, known_version=known, token=token))
        lock = self._lock(subject)
        if lock and lock.token == token:
            assert outcome == lock.kind(lock.version, token)
        elif lock and (lock.priority is Priority.HIGH or priority is Priority.LOW):
            assert outcome == AlreadyProcessing(lock.version)
        else:
            kind = Upgraded if lock else Published
            assert isinstance(outcome, kind)
            assert outcome.version > self.highest.get(subject, 0)
            assert outcome.version >= self.clock.pinned_ms * 1000
            until = self.clock.pinned_ms + LASTS_MS[priority]
            self.locks[subject] = Lock(outcome.version, token, priority, kind, until)
            self.highest[subject] = self.current[subject] = outcome.version

    def _lock(self, subject: str) -> Lock | None:
        """The lock as a request finds it; one that the clock's step back prolonged is cut to its time by being seen."""
        if lock := self.locks.get(subject):
            lock.until_ms = min(lock.until_ms, self.clock.pinned_ms + LASTS_MS[lock.priority])
            if lock.until_ms > self.clock.pinned_ms:
                return lock
        return None

    @rule(subject=SUBJECTS, back=st.integers(-1, 1))
    def release(self, subject: str, back: int) -> None:
        version = max(self.highest.get(subject, 1) + back, 1)
        held = subject in self.locks and self.locks[subject].version == version
        assert self.do(self.coalescer.release(subject, version)) is held
        if held:
            del self.locks[subject]

    @rule(subject=SUBJECTS, back=st.integers(-1, 2))
    def confirm(self, subject: str, back: int) -> None:
        version = max(self.highest.get(subject, 1) - back, 1)
        is_news = self.published.get(subject, 0) < version <= self.current.get(subject, 0)
        assert self.do(self.coalescer.confirm(subject, version)) is is_news
        if is_news:
            self.published[subject] = version

    @rule(step_ms=STEPS_MS)
    def time_passes(self, step_ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=step_ms))

    @rule(step_ms=st.integers(1, 100_000))
    def the_clock_is_set_back(self, step_ms: int) -> None:
        self.clock.advance(-timedelta(milliseconds=step_ms))

    @precondition(lambda self: self.current)
    @rule(data=st.data())
    def a_version_is_forgotten(self, data: st.DataObject) -> None:
        subject = data.draw(st.sampled_from(sorted(self.current)))
        keys = CoalescerKeys(self.valkey.unit("coalescer"), subject)
        self.do(self.valkey.execute("PEXPIREAT", keys.work, 1))
        del self.current[subject]
        self.published.pop(subject, None)
        self.locks.pop(subject, None)

    @rule()
    def the_server_loses_its_data(self) -> None:
        self.do(self.valkey.execute("FLUSHALL"))
        self.locks.clear()
        self.current.clear()
        self.published.clear()
        self.lost_data = True

    @invariant()
    def the_newest_versions_are_known_and_those_older_than_a_confirmed_one_obsolete(self) -> None:
        subjects = ["ada", "bob", "cem"]
        current = self.do(self.coalescer.current_versions(subjects))
        assert current == [self.current.get(subject) for subject in subjects]
        versions = {*self.published.items(), *self.current.items()}
        events = [(subject, version - older) for subject, version in versions for older in (0, 1)]
        expected = [version < self.published.get(subject, 0) for subject, version in events]
        assert self.do(self.coalescer.are_obsolete(events)) == expected


def test_locks_and_versions_behave_like_the_model_under_any_interleaving(embedded_url: str):
    CoalescerMachine.url = embedded_url
    run_state_machine_as_test(
        CoalescerMachine, settings=settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
    )
