"""A lease against three variables: its holder, its fence, its end."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.examples import examples
from tidegate.core.clock import ManualClock
from tidegate.core.errors import LeaseLost, LeaseTaken
from tidegate.core.ids import new_id
from tidegate.primitives.lease import Held, Lease, LeaseKeys
from tidegate.storage.valkey import Valkey

T = TypeVar("T")

OWNERS = ["a", "b", "c"]
owners = st.sampled_from(OWNERS)
spans = st.integers(1, 20)


class LeaseMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.valkey = self.run(Valkey.connect(self.url))
        self.clock, self.unit = ManualClock(), self.valkey.unit(new_id())
        self.leases = {owner: Lease(self.valkey, self.unit, "x", owner, self.clock) for owner in OWNERS}
        self.holds: dict[str, list[Held]] = {owner: [] for owner in OWNERS}
        self.holder: str | None = None
        self.until_ms = 0
        self.fence = 0

    def teardown(self) -> None:
        self.run(self.valkey.close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def is_held(self) -> bool:
        return self.holder is not None and self.until_ms > self.clock.pinned_ms

    def is_current(self, owner: str, held: Held) -> bool:
        return self.holder == owner and held.fence == self.fence

    @rule(owner=owners, ttl_ms=spans)
    def acquire(self, owner: str, ttl_ms: int) -> None:
        acquiring = self.leases[owner].acquire(timedelta(milliseconds=ttl_ms))
        if self.is_held() and self.holder != owner:
            with pytest.raises(LeaseTaken) as taken:
                self.run(acquiring)
            assert taken.value.remaining_ms == self.until_ms - self.clock.pinned_ms
            return
        held = self.run(acquiring)
        assert held.fence == self.fence if self.is_held() else held.fence > self.fence
        self.holder, self.fence, self.until_ms = owner, held.fence, self.clock.pinned_ms + ttl_ms
        self.holds[owner].append(held)

    @rule(owner=owners, data=st.data())
    def renew(self, owner: str, data: st.DataObject) -> None:
        if not self.holds[owner]:
            return
        held = data.draw(st.sampled_from(self.holds[owner]))
        renewing = self.leases[owner].renew(held)
        if not (self.is_held() and self.is_current(owner, held)):
            with pytest.raises(LeaseLost):
                self.run(renewing)
            return
        assert self.run(renewing).fence == self.fence
        self.until_ms = self.clock.pinned_ms + round(held.ttl.total_seconds() * 1000)

    @rule(owner=owners, data=st.data())
    def release(self, owner: str, data: st.DataObject) -> None:
        if not self.holds[owner]:
            return
        held = data.draw(st.sampled_from(self.holds[owner]))
        assert self.run(self.leases[owner].release(held)) == self.is_current(owner, held)
        if self.is_current(owner, held):
            self.holder = None

    @rule(ms=st.integers(1, 25))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=ms))

    @rule()
    def lose_everything(self) -> None:
        keys = LeaseKeys(self.unit, "x")
        self.run(self.valkey.execute("DEL", keys.lease, keys.fence))
        self.holder = None
        # One fence may be ahead of the clock by every lease that was given in its present millisecond.
        self.clock.advance(timedelta(milliseconds=1000))

    @invariant()
    def the_server_knows_the_holder(self) -> None:
        found = self.run(self.valkey.execute("HGET", LeaseKeys(self.unit, "x").lease, "owner"))
        assert found == (self.holder.encode() if self.holder else None)


def test_a_lease_behaves_like_its_model(embedded_url: str):
    LeaseMachine.url = embedded_url
    run_state_machine_as_test(
        LeaseMachine, settings=settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
    )
