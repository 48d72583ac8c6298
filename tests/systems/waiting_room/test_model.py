"""Whatever happens in whatever order, whoever dies in between: the same as in a plain model."""

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
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
from tests.servers.migrated import migrated_file
from tests.systems.waiting_room.harness import KEY, ROOM, RoomHarness, harness_at, line
from tests.systems.waiting_room.reference_model import (
    ABANDON_MS,
    LONGEST_MS,
    RATE,
    SESSION_MS,
    SETTLE_MS,
    RoomModel,
)
from tidegate.core.clock import ManualClock
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import Entering, InLine, Inside, NotActive, NotPresent, PassSigner, RoomPlan
from tidegate.systems.waiting_room.admission import AdmissionBatch
from tidegate.systems.waiting_room.model import UnknownRoom
from tidegate.systems.waiting_room.passes import PassRefused
from tidegate.systems.waiting_room.room_store import NUMBERS_AT_FIRST
from tidegate.systems.waiting_room.session_store import renew

USERS = list("abcdefgh")
USER = st.sampled_from(USERS)
CAPACITY = st.sampled_from([2, 3, 4, 1, 2, 3, 4, 0])
"""A room for nobody is a dull one."""


def plan_with(capacity: int) -> RoomPlan:
    return RoomPlan(
        capacity=capacity,
        admit_per_second=RATE,
        session=timedelta(milliseconds=SESSION_MS),
        longest_session=timedelta(milliseconds=LONGEST_MS),
        abandon_after=timedelta(milliseconds=ABANDON_MS),
    )


class RoomMachine(RuleBasedStateMachine):
    """The real room on the left, the plain one on the right."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.folder = tempfile.TemporaryDirectory()
        self.valkey = self.do(Valkey.connect(self.url))
        self.do(self.valkey.execute("FLUSHALL"))
        self.context = harness_at(self.do(migrated_file(Path(self.folder.name) / "rooms.db")), self.valkey, self.clock)
        self.harness: RoomHarness = self.do(self.context.__aenter__())
        self.passes: dict[str, str] = {}
        self.blocks = 1
        self.written_at: dict[int, int] = {}
        """When the row of an admission was written whose process died then."""

    @initialize(capacity=CAPACITY, opens_in_s=st.sampled_from([0, 0, 0, 20]), crowd=st.permutations(USERS))
    def begin(self, capacity: int, opens_in_s: int, crowd: list[str]) -> None:
        self.do(self.harness.rooms.create(ROOM, plan_with(capacity)))
        start = self.clock.now() + timedelta(seconds=opens_in_s)
        self.room = self.do(self.harness.rooms.open(ROOM, start if opens_in_s else None))
        now_ms = self.clock.pinned_ms
        opens_ms = now_ms + opens_in_s * 1000 if opens_in_s else 0
        self.plain = RoomModel(self.room.room.seed, opens_ms, capacity, now_ms, permits_at_ms=now_ms)
        self.keep()
        self.several_join(crowd[:6])

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.do(self.context.__aexit__(None, None, None))
        self.do(self.valkey.close())
        self.runner.close()
        self.folder.cleanup()

    @rule(user=USER, shows_pass=st.booleans())
    def join(self, user: str, shows_pass: bool) -> None:
        token = self.passes.get(user) if shows_pass else None
        place = self._claim(user, token)
        answer = self.do(self.room.join(user, token))
        self.plain.join(user, place)
        if answer.token:
            self.passes[user] = answer.token

    @rule(users=st.lists(USER, min_size=2, max_size=6, unique=True))
    def several_join(self, users: list[str]) -> None:
        """More often than anything else: a line of one or two keeps any order."""
        for user in users:
            self.join(user, shows_pass=False)

    def _claim(self, user: str, token: str | None) -> int | None:
        """The place that a pass brings back to one who is nowhere."""
        if token is None:
            return None
        try:
            shown = self.room.read(token)
        except PassRefused:
            return None
        return None if shown.place in self.plain.used else shown.place

    @rule(user=USER)
    def look(self, user: str) -> None:
        self.do(self.room.line.standing(user))
        self.plain.see(user)

    @rule(user=USER)
    def leave(self, user: str) -> None:
        if token := self._good(user):
            self.do(self.room.leave(token))
            self.plain.leave(user)

    def _good(self, user: str) -> str | None:
        """A pass of the visitor that is still accepted."""
        token = self.passes.get(user)
        if token is not None:
            try:
                PassSigner([KEY]).read(token, room=ROOM, now=self.clock.now())
            except PassRefused:
                return None
        return token

    @rule(user=USER)
    def renew(self, user: str) -> None:
        session = self.plain.inside.get(user)
        token = self.do(self.room.join(user)).token if user in self.plain.inside else None
        if session is None or token is None:
            return
        try:
            self.do(self.room.renew(token))
        except NotActive:
            assert session.expires_ms <= self.plain.now_ms
        else:
            assert session.expires_ms > self.plain.now_ms
            self.plain.renew(user)
            session.told_ms = session.expires_ms

    @rule(user=USER)
    def somebody_dies_after_prolonging_a_session_in_sql(self, user: str) -> None:
        session = self.plain.inside.get(user)
        if session is not None and session.expires_ms > self.plain.now_ms:
            self.do(self.harness.database.transaction(renew, ROOM, user))
            self.plain.renew(user)

    @rule(user=USER)
    def invite(self, user: str) -> None:
        self.do(self.room.invite([user]))
        invited = self.plain.invite(user)
        self.plain.write(invited)
        self.plain.tell(invited)

    @rule()
    def keep(self) -> None:
        self.do(self.harness.run_worker())
        plain = self.plain
        plain.remove_expired()
        plain.expire()
        if plain.entering:
            self._install()
        plain.expire()
        plain.remove_expired()
        taken = plain.take()
        plain.write(taken)
        plain.tell(taken)

    def _take(self) -> tuple[AdmissionBatch, list[str]]:
        """The first step; nothing is taken while an admission is in progress."""
        if self.plain.entering:
            with pytest.raises(UnknownRoom):
                self.do(self.room.admitter.take())
            return AdmissionBatch(epoch=0, entries=[]), []
        taken, expected = self.do(self.room.admitter.take()), self.plain.take()
        assert [each.user for each in taken.entries] == expected
        return taken, expected

    @rule()
    def somebody_dies_after_the_first_step(self) -> None:
        self._take()

    @rule()
    def somebody_dies_after_the_second_step(self) -> None:
        taken, expected = self._take()
        if expected:
            self.do(self.room.admitter.write(taken))
            self.plain.write(expected)
            for user in expected:
                self.written_at[self.plain.entering[user].number] = self.plain.now_ms

    @rule()
    def the_database_fails(self) -> None:
        taken, expected = self._take()
        if expected:
            self.do(self.harness.database.transaction(_rename, "room_tokens", "hidden"))
            with pytest.raises(Exception, match="room_tokens"):
                self.do(self.room.admitter.write(taken))
            self.do(self.harness.database.transaction(_rename, "hidden", "room_tokens"))
            self.plain.roll_back(expected)

    @rule(ms=st.sampled_from([1, 100, 250, 1000, 5000, 10_000, 20_000, 41_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(timedelta(milliseconds=ms))
        self.plain.now_ms = self.clock.pinned_ms

    @rule(ms=st.sampled_from([20_000, 15_000, 31_000]), prolongs=st.booleans())
    def a_while_goes_by(self, ms: int, prolongs: bool) -> None:
        """Everybody waits on, sessions end, and the next come in: else little would happen in a room that is full."""
        self.time_passes(ms)
        for user in USERS:
            self.look(user)
            if prolongs:
                self.somebody_dies_after_prolonging_a_session_in_sql(user)
        self.keep()

    @rule(capacity=CAPACITY)
    def the_capacity_is_changed(self, capacity: int) -> None:
        """Admissions whose rows are written are completed by this, the others reverted."""
        self.do(self.harness.rooms.replace_plan(ROOM, plan_with(capacity)))
        self.plain.capacity = capacity
        self._install()

    def _install(self) -> None:
        self.plain.settle(self.written_at)
        for session in self.plain.inside.values():
            session.told_ms = session.expires_ms

    @precondition(lambda self: self.blocks < 4)
    @rule()
    def the_server_loses_its_data(self) -> None:
        self.do(self.valkey.execute("FLUSHALL"))
        self.do(self.room.installer.install())
        plain = self.plain
        plain.entering = {user: each for user, each in plain.entering.items() if each.number in plain.rows}
        self._install()
        plain.waiting.clear()
        plain.lots.clear()
        plain.arrivals = NUMBERS_AT_FIRST * self.blocks
        self.blocks += 1
        plain.permits, plain.permits_at_ms = 4, plain.now_ms

    @invariant()
    def everybody_is_where_the_model_says(self) -> None:
        plain = getattr(self, "plain", None)
        if plain is None:
            return
        assert self.do(line(self.room, self.valkey)) == plain.line()
        counts = self.do(self.room.counts())
        assert counts.entering == len(plain.entering)
        assert set(plain.inside) == self._members("active")
        assert counts.active + counts.entering - counts.guests == plain.counted()
        assert sorted(self.do(self.harness.states())) == sorted(plain.tokens)

    def _members(self, part: str) -> set[str]:
        key: Any = self.room.line.keys["active" if part == "active" else "entering"]
        return {user.decode() for user in self.do(self.valkey.execute("ZRANGE", key, 0, -1))}

    @rule(user=USER)
    def ask(self, user: str) -> None:
        """What one is told, position and remaining time included."""
        plain, found = self.plain, self.do(self.room.line.standing(user))
        plain.see(user)
        if waiter := plain.waiting.get(user):
            opens_in_ms = max(0, plain.opens_ms - plain.now_ms)
            ahead = None if opens_in_ms else plain.line().index(user)
            assert found == InLine(place=waiter.place, ahead=ahead, opens_in_ms=opens_in_ms)
        elif session := plain.inside.get(user):
            assert isinstance(found, Inside)
            assert found.left_ms == max(0, session.told_ms - plain.now_ms)
        elif entrant := plain.entering.get(user):
            assert isinstance(found, Entering)
            assert found.place == (entrant.waiter.place if entrant.waiter else None)
        else:
            assert found == NotPresent()


def test_a_room_behaves_like_the_model_under_any_interleaving(embedded_url: str):
    assert SETTLE_MS == 10_000
    RoomMachine.url = embedded_url
    run_state_machine_as_test(
        RoomMachine, settings=settings(max_examples=examples(30), stateful_step_count=25, deadline=None)
    )


def _rename(tx: Transaction, name: str, other: str) -> None:
    tx.execute_sql(f"ALTER TABLE {name} RENAME TO {other}")
