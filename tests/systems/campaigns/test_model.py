"""Whatever happens in whatever order over several instances, whoever dies in between: nothing is lost, nothing happens
twice, and nothing is torn down that somebody needs."""

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CampaignHarness, harness_at
from tidegate.core.clock import ManualClock
from tidegate.core.ids import new_id
from tidegate.primitives.membership import Membership
from tidegate.storage.sql import Transaction
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns import campaign_store, scripts
from tidegate.systems.campaigns.decider import campaign_stream
from tidegate.systems.campaigns.entry_decisions import AppliedEntries, apply_entries
from tidegate.systems.campaigns.kinds import Kinds, Points
from tidegate.systems.campaigns.model import (
    Campaign,
    CampaignEntry,
    CampaignPlan,
    DecidedEntry,
    EntryOutcome,
    EntryVerdict,
)
from tidegate.systems.campaigns.recovery import RecoverableCampaigns
from tidegate.systems.campaigns.scripts import GROUP, process_keys

STOCK = 6
IDLE_MS = 1000
DELIVERIES = 3
USERS = ["ann", "bob", "cat", "dan", "eve", "fay", "gus", "no-hal", "no-ida", "jon"]
ONE_OF = st.integers(0, 1)


class RandomKind(Points):
    """Points for all but those called no."""

    kind = "MOODY"

    def apply(self, tx: Transaction, campaign: Campaign, entries: Sequence[CampaignEntry]) -> Sequence[EntryOutcome]:
        given = [entry for entry in entries if not entry.user.startswith("no")]
        if given:
            super().apply(tx, campaign, given)
        issued, refused = (
            EntryOutcome(verdict=EntryVerdict.ISSUED, points=1),
            EntryOutcome(verdict=EntryVerdict.REFUSED, reason="no"),
        )
        return [refused if entry.user.startswith("no") else issued for entry in entries]


KINDS = Kinds([RandomKind()])
DECODER = msgspec.json.Decoder(CampaignEntry)


class Process:
    """An instance, which does one step after the other; whatever it knows dies with it."""

    def __init__(self, machine: "WorkerHarness", name: str) -> None:
        self.machine, self.name = machine, name
        self.hand = process_keys(machine.valkey, name)
        self.stream = campaign_stream(
            machine.valkey, machine.campaign, machine.harness.campaigns.settings, machine.clock
        )
        self.consumer = self.stream.consumer(name)
        self.is_serving = False
        self.read: list[tuple[str, CampaignEntry]] = []
        self.applied: list[tuple[list[tuple[str, CampaignEntry]], AppliedEntries]] = []

    async def take_call(self) -> None:
        calls = self.machine.keys["wakeups"]
        await self.machine.valkey.execute("LMOVE", calls, self.hand["taken"], "RIGHT", "LEFT")

    async def answer(self) -> None:
        for campaign in set(await self.machine.valkey.execute("LRANGE", self.hand["taken"], 0, -1)):
            assert campaign.decode() == self.machine.campaign
            reply = await self.machine.serve(self)
            self.is_serving = self.is_serving or reply[0] == b"serving"

    async def take(self, count: int) -> None:
        if self.is_serving:
            for message in await self.consumer.read(count, 0):
                self.read.append((message.id, self.machine.decode(message.fields[b"payload"])))

    async def decide(self, count: int) -> None:
        batch, self.read = self.read[:count], self.read[count:]
        if batch:
            entries = [entry for _, entry in batch]
            applied = await self.machine.database.transaction(apply_entries, KINDS, self.machine.campaign, entries)
            self.applied.append((batch, applied))

    async def settle(self) -> None:
        for batch, applied in self.applied:
            await self.machine.settle(batch, applied)
            self.consumer.settled(message for message, _ in batch)
        self.applied = []

    async def retire(self, idle_ms: int = IDLE_MS) -> None:
        if self.is_serving:
            reply = await self.machine.leave(self, idle_ms)
            self.is_serving = reply[0] not in (b"left", b"torn_down")

    async def stop(self) -> None:
        self.read, self.applied = [], []
        await self.consumer.leave()
        await self.retire(-1)


class WorkerHarness(RuleBasedStateMachine):
    """Two processes, one campaign, and a leader who looks after the dead."""

    runner: asyncio.Runner
    harness: CampaignHarness
    clock: ManualClock

    def __init__(self) -> None:
        super().__init__()
        self.valkey, self.database = self.harness.valkey, self.harness.database
        self.do(self.valkey.execute("FLUSHALL"))
        self.campaign = f"c-{new_id()}"
        self.keys = self.harness.keys(self.campaign)
        plan = CampaignPlan(id=self.campaign, kind="MOODY", total_count=STOCK, stock=STOCK, points=1)
        self.do(self.harness.campaigns.create(plan))
        self.do(self.harness.campaigns.start(self.campaign))
        membership = Membership(self.valkey, self.valkey.unit("all"), "leader", self.clock)
        self.recoverable = RecoverableCampaigns(self.valkey, membership, self.harness.campaigns.settings, self.clock)
        self.names = itertools.count(1)
        self.alive = [self.born() for _ in range(2)]
        self.dead: list[Process] = []
        self.ghosts: list[Process] = []
        """The dead whose things were given to others; they may only have been frozen."""
        self.accepted: dict[str, int] = {}
        self.discarded: set[int] = set()

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def born(self) -> Process:
        return Process(self, f"p{next(self.names)}")

    def decode(self, payload: bytes) -> CampaignEntry:
        return DECODER.decode(payload)

    @rule(users=st.lists(st.sampled_from(USERS), min_size=1, max_size=4))
    def enter(self, users: list[str]) -> None:
        for user in users:
            named = f"{user}.{self.campaign}"
            answer = self.do(self.harness.campaigns.enter(self.campaign, named))
            if answer.answer == "ACCEPTED":
                self.accepted[named] = answer.number

    @rule(n=ONE_OF, how_far=st.integers(1, 5), count=st.integers(1, 4))
    def work(self, n: int, how_far: int, count: int) -> None:
        """Go so many steps of the way; the rest comes later, or never."""
        process = self.alive[n]
        steps = (
            process.take_call,
            process.answer,
            lambda: process.take(count),
            lambda: process.decide(count),
            process.settle,
        )
        for step in steps[:how_far]:
            self.do(step())

    @rule(n=ONE_OF)
    def finish(self, n: int) -> None:
        self.do(self.alive[n].decide(100))
        self.do(self.alive[n].settle())

    @rule(n=ONE_OF)
    def retire(self, n: int) -> None:
        self.clock.advance(timedelta(milliseconds=IDLE_MS))
        self.do(self.alive[n].retire())

    @rule(n=ONE_OF)
    def stop(self, n: int) -> None:
        self.do(self.alive[n].stop())

    @rule(n=ONE_OF)
    def crash(self, n: int) -> None:
        self.dead.append(self.alive[n])
        self.alive[n] = self.born()

    @precondition(lambda self: self.dead)
    @rule()
    def recover(self) -> None:
        ghost = self.dead.pop(0)
        self.do(self.recoverable.take_over(ghost.name))
        self.ghosts.append(ghost)

    @precondition(lambda self: self.ghosts)
    @rule()
    def send_late_message(self) -> None:
        """It was only frozen: it decides and settles what it had, although others have it too."""
        ghost = self.ghosts.pop()
        self.do(ghost.decide(100))
        self.do(ghost.settle())

    @rule()
    def sweep(self) -> None:
        """Those who live have given signs of life; hands that have not are taken for dead at the second look."""
        for each in self.alive:
            self.do(Membership(self.valkey, self.valkey.unit("all"), each.name, self.clock).join())
        self.do(self.recoverable.sweep_idle())

    @rule(is_replayed=st.booleans())
    def look_at_dead_letters(self, is_replayed: bool) -> None:
        letters = self.do(self.harness.campaigns.dead(self.campaign)).letters
        if is_replayed:
            self.do(self.harness.campaigns.replay(self.campaign, [letter.id for letter in letters]))
        else:
            self.do(self.harness.campaigns.discard(self.campaign, [letter.id for letter in letters]))
            self.discarded |= {letter.entry.number for letter in letters}

    @invariant()
    def nothing_is_lost_or_happens_twice(self) -> None:
        self.do(self.check())

    async def check(self) -> None:
        campaign, rows, points = await self.database.read(_everything, self.campaign, list(self.accepted))
        line, letters, pending, counted = await self.look()
        numbers = {row.number for row in rows} | {entry.number for entry in (*line, *letters)} | self.discarded
        assert set(self.accepted.values()) <= numbers, "an entry is lost"

        issued = {row.user: row.number for row in rows if row.outcome.verdict is EntryVerdict.ISSUED}
        assert len(issued) == campaign.issued <= STOCK
        assert points == dict.fromkeys(issued, 1), "something happened twice, or not at all"
        unsettled = sum(issued.get(entry.user) == entry.number for entry in (*line, *letters))
        assert counted + unsettled == campaign.issued, "the door counts what SQL has"

        if len(line) > pending:
            assert await self.is_noticed(), "something is unread, and nobody comes"
        if any(process.is_serving for process in self.alive):
            assert await self.valkey.execute("EXISTS", self.keys["stream"]), "somebody still uses what was torn down"

    async def look(self) -> tuple[list[CampaignEntry], list[CampaignEntry], int, int]:
        """Who is in line, who is a dead letter, how many of the line are pending, and how many the door counts."""
        keys = self.keys
        line, dead, pending, issued = await self.valkey.pipeline(
            [
                ("XRANGE", keys["stream"], "-", "+"),
                ("XRANGE", keys["dead"], "-", "+"),
                ("XPENDING", keys["stream"], GROUP),
                ("HGET", keys["book"], "issued"),
            ]
        )
        in_line, letters = ([self.decode(fields[b"payload"]) for _, fields in found] for found in (line, dead))
        return in_line, letters, 0 if isinstance(pending, Exception) else pending["pending"], int(issued)

    async def is_noticed(self) -> bool:
        """It has hands, or a call of it is where somebody finds it."""
        unburied = {each.name for each in (*self.alive, *self.dead)}
        hands = {owner.decode() for owner in await self.valkey.execute("SMEMBERS", self.keys["processes"])}
        lists = [self.keys["wakeups"], *(process_keys(self.valkey, name)["taken"] for name in unburied)]
        calls = [await self.valkey.execute("LRANGE", each, 0, -1) for each in lists]
        return bool(hands & unburied) or any(self.campaign.encode() in each for each in calls)

    async def serve(self, process: Process) -> list[Any]:
        return await scripts.serve(
            self.valkey,
            **process.hand,
            campaign=self.campaign,
            owner=process.name,
            group=GROUP,
            if_needed=1,
            **self.keys,
        )

    async def leave(self, process: Process, idle_ms: int) -> list[Any]:
        return await scripts.leave(
            self.valkey,
            served=process.hand["served"],
            campaign=self.campaign,
            owner=process.name,
            group=GROUP,
            idle_ms=idle_ms,
            now_ms=self.clock.pinned_ms,
            **self.keys,
        )

    async def settle(self, batch: list[tuple[str, CampaignEntry]], applied: AppliedEntries) -> None:
        decisions = zip(batch, applied.decisions, strict=True)
        await scripts.settle(
            self.valkey,
            campaign=self.campaign,
            group=GROUP,
            settled=[(message, made.verdict, entry.user, made.memory) for (message, entry), made in decisions],
            sold_out=applied.sold_out,
            backlog_limit=2,
            pause_ms=250,
            now_ms=self.clock.pinned_ms,
            **self.keys,
        )

    def teardown(self) -> None:
        self.do(self.end_well())

    async def end_well(self) -> None:
        """From whatever state it is in: with one process that lives on, everything is decided and nothing is left."""
        for each in self.dead:
            await self.recoverable.take_over(each.name)
        self.dead = []
        for each in self.alive[1:]:
            await each.stop()
        await self.recoverable.sweep_idle()
        last = self.alive[0]
        for _ in range(20):
            letters = (await self.harness.campaigns.dead(self.campaign)).letters
            await self.harness.campaigns.replay(self.campaign, [letter.id for letter in letters])
            await last.take_call()
            await last.answer()
            await last.take(10)
            await last.decide(100)
            await last.settle()
            self.clock.advance(timedelta(milliseconds=IDLE_MS))
            await last.retire()
            line, letters, *_ = await self.look()
            if not line and not letters and not last.is_serving:
                break
        await self.check()
        assert (await self.look())[:3] == ([], [], 0)
        assert await self.valkey.execute("EXISTS", self.keys["stream"], self.keys["processes"], self.keys["busy"]) == 0


def _everything(tx: Transaction, ident: str, users: list[str]) -> tuple[Campaign, list[DecidedEntry], dict[str, int]]:
    """The campaign, its rows, and the points of those of these users who have some."""
    points = {user: campaign_store.points_of(tx, user) for user in users}
    has_some = {user: count for user, count in points.items() if count}
    return campaign_store.get(tx, ident), campaign_store.entries(tx, ident, None, 500), has_some


def test_nothing_is_lost_or_repeated(embedded_url: str):
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        valkey = runner.run(Valkey.connect(embedded_url))
        url = runner.run(migrated_file(Path(folder) / "works.db"))
        context = harness_at(url, valkey, clock, max_deliveries=DELIVERIES)
        harness = runner.run(context.__aenter__())
        harness.campaigns._kinds = ["MOODY"]  # pyright: ignore[reportPrivateUsage]
        WorkerHarness.runner, WorkerHarness.harness, WorkerHarness.clock = runner, harness, clock
        try:
            run_state_machine_as_test(
                WorkerHarness, settings=settings(max_examples=examples(18), stateful_step_count=25)
            )
        finally:
            runner.run(context.__aexit__(None, None, None))
            runner.run(valkey.close())
