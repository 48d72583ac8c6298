"""Schedules against a model that looks at every minute."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.engine.schedules.harness import ScheduleHarness, harness_at
from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tidegate.core.clock import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CRONS: dict[str, Callable[[datetime], bool]] = {
    "*/15 * * * *": lambda moment: moment.minute % 15 == 0,
    "0 * * * *": lambda moment: moment.minute == 0,
    "30 2 * * *": lambda moment: (moment.hour, moment.minute) == (2, 30),
    "0 0 1 * 4": lambda moment: (moment.hour, moment.minute) == (0, 0) and (moment.day == 1 or moment.weekday() == 3),
}
USERS = ("ada", "bob")


@dataclass
class Planned:
    """A schedule of the model: the last moment that was looked at, and whether it is asleep."""

    user: str
    cron: str
    looked_until: datetime
    asleep: bool = False

    def is_due(self, now: datetime) -> bool:
        """Whether its minute has come since it was last looked at."""
        moment = self.looked_until.replace(second=0, microsecond=0) + MINUTE
        while moment <= now:
            if CRONS[self.cron](moment):
                return True
            moment += MINUTE
        return False


@dataclass
class Model:
    schedules: dict[int, Planned] = field(default_factory=dict[int, Planned])
    active: set[str] = field(default_factory=set[str])
    begun: list[str] = field(default_factory=list[str])


class Scheduling(RuleBasedStateMachine):
    """What the timekeeper and the users of schedules do, in any order."""

    valkey_url: str

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack, self.clock, self.model = AsyncExitStack(), ManualClock(START), Model()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        url = await migrated_file(Path(folder) / "tidegate.db")
        valkey = await self.stack.enter_async_context(empty_valkey(self.valkey_url))
        self.harness: ScheduleHarness = await self.stack.enter_async_context(harness_at(url, valkey, self.clock))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.stack.aclose())
            self.loop.close()

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(user=st.sampled_from(USERS), cron=st.sampled_from(sorted(CRONS)))
    def add(self, user: str, cron: str) -> None:
        [added] = self.do(self.harness.add(user, cron=cron))
        self.model.schedules.setdefault(added.id, Planned(user, cron, self.clock.now()))

    @rule(minutes=st.sampled_from([1, 7, 20, 61, 600, 5000]), seconds=st.integers(0, 59))
    def wait(self, minutes: int, seconds: int) -> None:
        self.clock.advance(timedelta(minutes=minutes, seconds=seconds))

    @rule(runs_are_brief=st.booleans())
    def fire(self, runs_are_brief: bool) -> None:
        while True:
            next_in_ms = self.do(self.harness.due.fire())
            if runs_are_brief:
                self.do(self.harness.end_runs())
            if next_in_ms != 0:
                break
        now, model = self.clock.now(), self.model
        due = {number: each for number, each in model.schedules.items() if not each.asleep and each.is_due(now)}
        by_user: dict[str, int] = {}
        for number, each in due.items():
            by_user.setdefault(each.user, number)
            each.looked_until = now
        for user in sorted(by_user):
            if user not in model.active:
                model.active.add(user)
                model.begun.append(user)
        if runs_are_brief:
            model.active.clear()

    @rule()
    def runs_end(self) -> None:
        self.do(self.harness.end_runs())
        self.model.active.clear()

    @rule(data=st.data(), what=st.sampled_from(["pause", "resume", "remove"]))
    def change(self, data: st.DataObject, what: str) -> None:
        if not self.model.schedules:
            return
        number = data.draw(st.sampled_from(sorted(self.model.schedules)))
        planned = self.model.schedules[number]
        self.do(getattr(self.harness.schedules, what)(number))
        match what:
            case "pause":
                planned.asleep = True
            case "resume" if planned.asleep:
                planned.asleep, planned.looked_until = False, self.clock.now()
            case "remove":
                del self.model.schedules[number]
            case _:
                pass

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "harness"):
            return
        runs = self.do(self.harness.runs())
        assert sorted(run.login for run in runs) == sorted(self.model.begun)
        assert {run.login for run in runs if run.active_key} == self.model.active
        found = self.do(self.harness.schedules.list_schedules())
        assert {each.id: each.next_at is None for each in found} == {
            number: each.asleep for number, each in self.model.schedules.items()
        }


def test_schedules_behave_like_the_model(embedded_url: str):
    machine = type("Machine", (Scheduling,), {"valkey_url": embedded_url})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(10), stateful_step_count=20, deadline=None)
    )
