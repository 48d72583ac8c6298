"""Membership and election against a dictionary of ends and the name of a leader."""

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
from tidegate.core.errors import LeaseLost
from tidegate.core.ids import new_id
from tidegate.primitives.membership import Elected, Election, Following, Membership, MembershipSettings
from tidegate.storage.valkey import Valkey

T = TypeVar("T")

OWNERS = ["a", "b", "c", "d"]
owners = st.sampled_from(OWNERS)
LEASE_MS = 20
SETTINGS = MembershipSettings(lease=timedelta(milliseconds=LEASE_MS), renew_every=timedelta(milliseconds=8))
PROOF_MS, GAP_MS = 6, 1_000


class PresenceMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.valkey = self.run(Valkey.connect(self.url))
        self.clock, unit = ManualClock(), self.valkey.unit(new_id())
        self.memberships = {each: Membership(self.valkey, unit, each, self.clock, SETTINGS) for each in OWNERS}
        self.elections = {each: Election(self.valkey, unit, each, self.clock, SETTINGS) for each in OWNERS}
        self.ends: dict[str, int] = {}
        self.leader: str | None = None
        self.fence = 0
        self.since = self.last = -(10**9)

    def teardown(self) -> None:
        self.run(self.valkey.close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def remaining(self, owner: str | None) -> int:
        return self.ends.get(owner or "", 0) - self.clock.pinned_ms

    @rule(owner=owners)
    def join(self, owner: str) -> None:
        self.run(self.memberships[owner].join())
        self.ends[owner] = self.clock.pinned_ms + LEASE_MS

    @rule(owner=owners)
    def renew(self, owner: str) -> None:
        if owner not in self.ends:
            with pytest.raises(LeaseLost):
                self.run(self.memberships[owner].renew())
            return
        assert self.run(self.memberships[owner].renew()) == (self.remaining(owner) > 0)
        self.ends[owner] = self.clock.pinned_ms + LEASE_MS

    @rule(owner=owners)
    def leave(self, owner: str) -> None:
        self.run(self.memberships[owner].leave())
        self.ends.pop(owner, None)

    @rule(owner=owners)
    def expire(self, owner: str) -> None:
        """Time does not pass in a step, so writes are as far apart as `pass_time` made them."""
        self.record_accepted_write()
        late = {each for each in self.ends if self.remaining(each) <= 0 and each != owner}
        dead = late if self.clock.pinned_ms - self.since >= PROOF_MS else set[str]()
        expiry = self.run(self.memberships[owner].expire())
        assert set(expiry.owners) == dead
        for each in dead:
            del self.ends[each]
        others = [each for each in self.ends if each != owner]
        assert (expiry.next_in_ms is None) == (not others)
        if expiry.next_in_ms is not None:
            assert 0 < expiry.next_in_ms <= LEASE_MS

    def record_accepted_write(self) -> None:
        if self.clock.pinned_ms - self.last > GAP_MS:
            self.since = self.clock.pinned_ms
        self.last = self.clock.pinned_ms

    @rule(owner=owners)
    def stand(self, owner: str) -> None:
        self.record_accepted_write()
        if self.remaining(owner) <= 0:
            with pytest.raises(LeaseLost):
                self.run(self.elections[owner].stand())
            return
        outcome = self.run(self.elections[owner].stand())
        if isinstance(outcome, Following):
            assert outcome.remaining_ms == self.remaining(self.leader) > 0
            assert self.leader != owner
        elif self.leader == owner:
            assert outcome == Elected(self.fence)
        else:
            assert self.remaining(self.leader) <= 0
            assert outcome.fence > self.fence
            self.leader, self.fence = owner, outcome.fence

    @rule(owner=owners)
    def resign(self, owner: str) -> None:
        assert self.run(self.elections[owner].resign()) == (self.leader == owner)
        if self.leader == owner:
            self.leader = None

    @rule(ms=st.one_of(st.integers(1, 25), st.just(GAP_MS + 1)))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=ms))

    @invariant()
    def everybody_is_known(self) -> None:
        members = self.run(self.memberships["a"].members())
        assert {each.owner: each.remaining_ms for each in members} == {each: self.remaining(each) for each in self.ends}


def test_membership_and_election_behave_like_the_model(embedded_url: str):
    PresenceMachine.url = embedded_url
    limits = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(PresenceMachine, settings=limits)
