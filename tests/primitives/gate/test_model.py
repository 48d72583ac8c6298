"""The gate against an upstream that counts for itself, under any interleaving Hypothesis can think of."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.examples import examples
from tests.primitives.gate.harness import GateHarness, job
from tidegate.core.clock import ManualClock, to_ms
from tidegate.primitives.gate import Admitted, Allowance, CredentialLimits, Outcome, Settlement, settlement
from tidegate.storage.valkey import Valkey

WINDOW_MS = 60_000
CONCURRENCY = 4


@dataclass
class Upstream:
    """Fixed windows that open with their first call, as GitHub's do; it knows when a limit was broken."""

    limit: int
    opened_ms: int | None = None
    used: int = 0
    violations: int = 0
    calls: list[str] = field(default_factory=list[str])

    def call(self, name: str, now_ms: int, *, is_free: bool) -> Allowance:
        if self.opened_ms is None or now_ms >= self.opened_ms + WINDOW_MS:
            self.opened_ms, self.used = now_ms, 0
        self.calls.append(name)
        if not is_free:
            self.used += 1
            self.violations += self.used > self.limit
        ends_s = -(-(self.opened_ms + WINDOW_MS) // 1000)
        return Allowance(
            limit=self.limit,
            remaining=max(0, self.limit - self.used),
            window=ends_s,
            resets_in_ms=ends_s * 1000 - now_ms // 1000 * 1000,
        )


class GateMachine(RuleBasedStateMachine):
    """Rules are what can happen to a call; invariants hold after each."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.offered: set[str] = set()
        self.done: set[str] = set()
        self.out: list[Admitted] = []
        self.answers: list[Settlement] = []
        self.spent: list[Settlement] = []
        self.excluded: dict[str, tuple[str, ...]] = {}

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    @initialize(limits=st.lists(st.integers(3, 12), min_size=1, max_size=3))
    def prepare(self, limits: list[int]) -> None:
        self.upstreams = {f"token-{n}": Upstream(limit) for n, limit in enumerate(limits)}
        self.valkey = self.run(Valkey.connect(self.url))
        self.harness = self.run(GateHarness(self.valkey, self.clock).prepare())
        bounds = CredentialLimits(
            concurrency=CONCURRENCY, per_minute=10_000, floor=0, window=timedelta(milliseconds=WINDOW_MS)
        )
        for credential in self.upstreams:
            self.run(self.harness.register(credential, limits=bounds))

    @rule(count=st.integers(1, 8), run=st.sampled_from("abc"), delay_ms=st.sampled_from([0, 0, 500]), data=st.data())
    def offer(self, count: int, run: str, delay_ms: int, data: st.DataObject) -> None:
        affinity = data.draw(st.sampled_from(["", *self.upstreams]))
        excluded = tuple(data.draw(st.sets(st.sampled_from(sorted(self.upstreams)))))
        wishes = {"run": run, "delay_ms": delay_ms, "affinity": affinity, "excluded": excluded}
        new = [job(f"job-{len(self.offered) + n}", **wishes) for n in range(count)]
        self.excluded |= {one.job: excluded for one in new if len(excluded) < len(self.upstreams)}
        assert self.run(self.harness.gate.enqueue(new)) == count
        self.offered |= {one.job for one in new}
        assert self.run(self.harness.gate.enqueue(new)) == 0
        self.read()

    @rule(data=st.data(), is_free=st.sampled_from([False, False, True]))
    def call(self, data: st.DataObject, is_free: bool) -> None:
        """A worker calls; its answer is on the way."""
        if admitted := self.pick(data, self.out):
            self.make_call(admitted, is_free=is_free)

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Answers are settled in any order."""
        if answer := self.pick(data, self.answers):
            self.end(answer)

    @rule(data=st.data(), did_arrive=st.booleans())
    def die(self, data: st.DataObject, did_arrive: bool) -> None:
        """A worker dies with its call: perhaps the upstream counted it, perhaps not."""
        known = [one for one in self.out if self.upstreams[one.credential].calls]
        if admitted := self.pick(data, known):
            self.out.remove(admitted)
            if did_arrive:
                self.upstreams[admitted.credential].call(admitted.job, self.now_ms, is_free=False)
            self.end(settlement(admitted, Outcome.UNKNOWN))

    @rule(data=st.data(), is_guess=st.booleans())
    def refuse(self, data: st.DataObject, is_guess: bool) -> None:
        """The upstream asks the credential to rest."""
        if admitted := self.pick(data, self.out):
            self.out.remove(admitted)
            self.end(settlement(admitted, blocked_ms=2_000, is_guess=is_guess))

    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        """A worker finds that the job is finished already, and does not call."""
        if admitted := self.pick(data, self.out):
            self.out.remove(admitted)
            self.end(settlement(admitted, Outcome.UNUSED))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Somebody settles again what was settled before."""
        if old := self.pick(data, self.spent):
            assert self.run(self.harness.settle([old])).settled == 0
            self.read()

    @rule(span_ms=st.sampled_from([1, 400, 5_000, 30_000, 61_000]))
    def wait(self, span_ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=span_ms))
        self.run(self.harness.gate.fire())
        self.read()

    @invariant()
    def no_limit_is_broken(self) -> None:
        for credential, upstream in getattr(self, "upstreams", {}).items():
            assert upstream.violations == 0, credential

    @invariant()
    def the_books_agree_with_what_is_out(self) -> None:
        if not hasattr(self, "harness"):
            return
        under_way = [one.credential for one in (*self.out, *self.answers)]
        for told in self.run(self.harness.gate.status("octocat")).credentials:
            assert told.in_flight == under_way.count(told.name) <= CONCURRENCY

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.finish()
            self.run(self.valkey.close())
        self.runner.close()

    def finish(self) -> None:
        """Work goes on until nothing is left: every job came out, and none was lost."""
        for _ in range(200):
            for admitted in list(self.out):
                self.make_call(admitted, is_free=False)
            for answer in list(self.answers):
                self.end(answer)
            due_in_ms = self.run(self.harness.gate.fire())
            self.read()
            if not self.out and due_in_ms is None:
                break
            if not self.out:
                self.wait(due_in_ms)
        self.no_limit_is_broken()
        assert self.done == self.offered

    @property
    def now_ms(self) -> int:
        return to_ms(self.clock.now())

    def make_call(self, admitted: Admitted, *, is_free: bool) -> None:
        self.out = [one for one in self.out if one is not admitted]
        said = self.upstreams[admitted.credential].call(admitted.job, self.now_ms, is_free=is_free)
        self.answers.append(settlement(admitted, allowance=said))

    def end(self, answer: Settlement) -> None:
        self.answers = [one for one in self.answers if one is not answer]
        assert self.run(self.harness.settle([answer])).settled == 1
        assert answer.job not in self.done, "a job came out twice"
        self.done.add(answer.job)
        self.spent.append(answer)
        self.read()

    def read(self) -> None:
        came = self.run(self.harness.admitted())
        for one in came:
            assert one.credential not in self.excluded.get(one.job, ()), "it is excluded from this job"
        self.out += came

    def pick(self, data: st.DataObject, items: list[Any]) -> Any:
        return data.draw(st.sampled_from(items)) if items else None


def test_no_limit_is_exceeded_and_no_job_lost_under_any_interleaving(embedded_url: str):
    GateMachine.url = embedded_url
    run_state_machine_as_test(
        GateMachine,
        settings=settings(
            max_examples=examples(30),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
