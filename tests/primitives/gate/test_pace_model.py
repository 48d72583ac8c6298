"""Paced hosts against one that counts for itself, under any interleaving Hypothesis can think of."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.examples import examples
from tests.primitives.gate.harness import GateHarness, job
from tests.primitives.gate.test_pace import IDENTITY
from tests.primitives.gate.test_repair import pages
from tidegate.core.clock import ManualClock, to_ms
from tidegate.primitives.gate import Admitted, CredentialRecord, Job, Outcome, PoolRecord, Settlement, settlement
from tidegate.storage.valkey import Valkey

HOSTS = ("fast", "slow", "free")
NO_PACE = "free"
MOST_DEATHS = 4  # the stream buries what killed more
SPANS_MS = [1, 300, 700, 1_000, 2_000, 5_000, 61_000]
LONG_MS = 300_000


@dataclass
class Host:
    """What a host asks for, and what it saw."""

    gap_ms: int = 0
    ended_ms: int = 0
    paused_until: int = 0


class PaceMachine(RuleBasedStateMachine):
    """Rules are what can happen to a call; every permit is judged when it comes out."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.hosts = {name: Host() for name in HOSTS}
        self.offered: dict[str, Job] = {}
        self.done: set[str] = set()
        self.out: list[Admitted] = []
        self.resting: dict[tuple[str, str], int] = {}

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @initialize(
        count=st.integers(1, 7),
        concurrency=st.integers(1, 2),
        gaps=st.tuples(*[st.integers(1, 1500)] * 2),
        resting=st.integers(0, 6),
        data=st.data(),
    )
    def prepare(self, count: int, concurrency: int, gaps: tuple[int, int], resting: int, data: st.DataObject) -> None:
        self.concurrency = concurrency
        self.valkey = self.run(Valkey.connect(self.url))
        self.harness = self.run(GateHarness(self.valkey, self.clock).prepare())
        self.identities = [f"identity-{n}" for n in range(count)]
        limits = IDENTITY.model_copy(update={"concurrency": concurrency})
        for identity in self.identities:
            self.run(self.harness.register(identity, limits=limits))
        for name, gap_ms in zip(HOSTS, gaps, strict=False):
            self.pace(name, gap_ms)
            self.offer(6, name, data)
        self.refuse_many("slow", self.identities[:resting])

    def refuse_many(self, name: str, identities: list[str]) -> None:
        """Before we came, the host had asked so many to stay away."""
        self.resting |= {(each, name): self.now_ms + LONG_MS for each in identities}
        notes = [
            CredentialRecord(credential=each, bucket=name, blocked_ms=LONG_MS, rests_bucket=True) for each in identities
        ]
        self.run(self.harness.gate.remind(PoolRecord(pool="octocat", started=0, running=0, notes=notes)))

    @rule(name=st.sampled_from(HOSTS[:2]), gap_ms=st.integers(1, 1500))
    def pace(self, name: str, gap_ms: int) -> None:
        host = self.hosts[name]
        host.ended_ms = host.ended_ms or self.now_ms
        host.gap_ms = gap_ms
        self.run(self.harness.gate.pace("octocat", name, gap_ms=gap_ms))
        self.read()

    @rule(count=st.integers(1, 6), name=st.sampled_from(HOSTS), data=st.data())
    def offer(self, count: int, name: str, data: st.DataObject) -> None:
        affinity = data.draw(st.sampled_from(["", "", *self.identities]))
        start = len(self.offered)
        new = [job(f"job-{start + n:04}", bucket=name, affinity=affinity) for n in range(count)]
        self.offered |= {one.job: one for one in new}
        assert self.run(self.harness.gate.enqueue(new)) == count
        self.read()

    @precondition(lambda self: self.out)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.ANSWERED, Outcome.ANSWERED, Outcome.UNKNOWN]))
    def end(self, data: st.DataObject, outcome: Outcome) -> None:
        self.settle(settlement(self.pick(data), outcome))

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        """It was never called, unless somebody had it before and died."""
        admitted = self.pick(data)
        self.settle(settlement(admitted, Outcome.UNUSED), was_made=admitted.deliveries > 1)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), ms=st.sampled_from(SPANS_MS))
    def refuse(self, data: st.DataObject, ms: int) -> None:
        """The host asks this identity to stay away for a while."""
        admitted = self.pick(data)
        key = (admitted.credential, admitted.bucket)
        self.resting[key] = max(self.resting.get(key, 0), self.now_ms + ms)
        self.settle(settlement(admitted, blocked_ms=ms, rests_bucket=True))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), ms=st.sampled_from(SPANS_MS))
    def pause(self, data: st.DataObject, ms: int) -> None:
        """The host asks everybody to."""
        admitted = self.pick(data)
        host = self.hosts[admitted.bucket]
        host.paused_until = max(host.paused_until, self.now_ms + ms)
        self.settle(settlement(admitted, pause_ms=ms))

    @precondition(lambda self: self.out)
    @rule()
    def die(self) -> None:
        """The worker dies, and another one takes everything over, with its permits."""
        before = {one.job: one for one in self.out}
        if any(one.deliveries >= MOST_DEATHS for one in self.out):
            return
        self.run(self.harness.take_over())
        self.out = [
            msgspec.structs.replace(one, deliveries=before[one.job].deliveries + 1)
            for one in self.run(self.harness.admitted())
        ]
        assert {one.job: one.permit for one in self.out} == {name: one.permit for name, one in before.items()}

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """A message is lost, and everything unfinished is offered again."""
        admitted = self.pick(data)
        self.out.remove(admitted)
        self.hosts[admitted.bucket].ended_ms = self.now_ms
        self.run(self.valkey.execute("XDEL", self.harness.stream, admitted.message))
        unfinished = [one for name, one in self.offered.items() if name not in self.done]
        assert self.run(self.harness.gate.rebuild(pages(unfinished))) == 1
        self.read()

    @rule(span_ms=st.sampled_from(SPANS_MS))
    def wait(self, span_ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=span_ms))
        self.run(self.harness.gate.fire())
        self.read()

    @invariant()
    def never_two_are_out_where_there_is_a_gap(self) -> None:
        by_host = Counter(one.bucket for one in self.out)
        assert by_host["fast"] <= 1
        assert by_host["slow"] <= 1

    @invariant()
    def no_identity_is_used_more_often_than_it_may(self) -> None:
        assert all(count <= self.concurrency for count in Counter(one.credential for one in self.out).values())

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.finish()
            self.run(self.valkey.close())
        self.runner.close()

    def finish(self) -> None:
        """Work goes on until nothing is left: the timekeeper alone sees to it."""
        for _ in range(600):
            for admitted in list(self.out):
                self.settle(settlement(admitted))
            due_in_ms = self.run(self.harness.gate.fire())
            self.read()
            if not self.out and due_in_ms is None:
                break
            if not self.out:
                self.wait(due_in_ms)
        assert self.done == self.offered.keys()

    @property
    def now_ms(self) -> int:
        return to_ms(self.clock.now())

    def settle(self, result: Settlement, *, was_made: bool = True) -> None:
        self.out = [one for one in self.out if one.job != result.job]
        if was_made:
            self.hosts[result.bucket].ended_ms = self.now_ms
        assert self.run(self.harness.settle([result])).settled == 1
        self.done.add(result.job)
        self.read()

    def read(self) -> None:
        for one in self.run(self.harness.admitted()):
            self.judge(one)
            self.out.append(one)

    def judge(self, one: Admitted) -> None:
        """A permit came out just now."""
        assert one.job not in self.done
        host = self.hosts[one.bucket]
        assert self.now_ms >= host.paused_until, "the host has asked for a pause"
        assert self.now_ms >= self.resting.get((one.credential, one.bucket), 0), "the identity must rest there"
        if one.bucket != NO_PACE:
            assert self.now_ms >= host.ended_ms + self.gap_of(one.bucket), "too soon after the last call ended"

    def gap_of(self, name: str) -> int:
        resting = sum(self.resting.get((each, name), 0) > self.now_ms for each in self.identities)
        gap_ms, healthy = self.hosts[name].gap_ms, len(self.identities) - resting
        return gap_ms if 5 * healthy >= len(self.identities) else 2 * max(gap_ms, 1_000)

    def pick(self, data: st.DataObject) -> Admitted:
        return data.draw(st.sampled_from(self.out))


def test_no_call_is_early_and_none_is_lost_under_any_interleaving(embedded_url: str):
    PaceMachine.url = embedded_url
    run_state_machine_as_test(
        PaceMachine,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
