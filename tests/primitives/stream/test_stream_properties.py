"""A stream against lists: whatever is done in whatever order, nothing is lost or done twice, and counts are right."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.examples import examples
from tidegate.core.clock import ManualClock
from tidegate.core.ids import new_id
from tidegate.primitives.stream import Consumer, Message, Stream, StreamSettings
from tidegate.storage.valkey import Valkey

T = TypeVar("T")

NAMES = ["a", "a/2", "b"]
names = st.sampled_from(NAMES)
MAX_DELIVERIES = 3


class Item(NamedTuple):
    """What the model knows of a message."""

    n: int
    deliveries: int


class Buried(NamedTuple):
    n: int
    deliveries: int
    reason: str
    at_ms: int


class StreamMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.valkey = self.run(Valkey.connect(self.url))
        self.clock = ManualClock()
        limits = StreamSettings(max_deliveries=MAX_DELIVERIES)
        self.stream = Stream(self.valkey, self.valkey.unit(new_id()), "jobs", limits, self.clock)
        self.consumers = {name: self.new_consumer(name) for name in NAMES}
        self.added = 0
        self.waiting: list[Item] = []
        self.held: dict[str, dict[str, Item]] = {name: {} for name in NAMES}
        self.dead: list[Buried] = []
        self.done: list[int] = []
        self.worthless: list[str] = []

    def teardown(self) -> None:
        self.run(self.valkey.close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def new_consumer(self, name: str) -> Consumer:
        owner, _, suffix = name.partition("/")
        return self.stream.consumer(owner, suffix)

    def drop(self, name: str, message_id: str) -> Item:
        self.worthless.append(message_id)
        return self.held[name].pop(message_id)

    def hand_on(self, name: str, message_id: str, reason: str, *, most: int) -> None:
        item = self.drop(name, message_id)
        if item.deliveries >= most:
            self.dead.append(Buried(item.n, item.deliveries, reason, self.clock.pinned_ms))
        else:
            self.waiting.append(Item(item.n, item.deliveries + 1))

    @rule(count=st.integers(1, 5))
    def add(self, count: int) -> None:
        numbers = range(self.added, self.added + count)
        self.run(self.stream.add([{b"n": b"%d" % n} for n in numbers]))
        self.added += count
        self.waiting += [Item(n, 1) for n in numbers]

    @rule(name=names, count=st.integers(1, 4))
    def read(self, name: str, count: int) -> None:
        messages = self.run(self.consumers[name].read(count, 0))
        assert [as_item(message) for message in messages] == self.waiting[:count]
        self.held[name] |= {message.id: as_item(message) for message in messages}
        del self.waiting[:count]

    @rule(name=names, data=st.data())
    def ack(self, name: str, data: st.DataObject) -> None:
        chosen = self.choose(name, data)
        old = self.worthless[-3:]
        assert self.run(self.consumers[name].ack([*old, *chosen])) == len(chosen)
        self.done += [self.drop(name, each).n for each in chosen]

    @rule(name=names, data=st.data(), fail=st.booleans())
    def refuse(self, name: str, data: st.DataObject, *, fail: bool) -> None:
        chosen, old = self.choose(name, data), self.worthless[-3:]
        foreign = [each for other in NAMES if other != name for each in self.held[other]]
        call = self.stream.fail if fail else self.stream.retry
        assert self.run(call(name, [*foreign, *chosen, *old], "refused")) == len(chosen)
        self.consumers[name].settled(chosen)
        for each in chosen:
            self.hand_on(name, each, "refused", most=1 if fail else MAX_DELIVERIES)

    def choose(self, name: str, data: st.DataObject) -> list[str]:
        mine = list(self.held[name])
        return data.draw(st.lists(st.sampled_from(mine), unique=True)) if mine else []

    @rule(owner=st.sampled_from(["a", "b", "c"]))
    def take_over(self, owner: str) -> None:
        """The process died; one of the same name is started, as one would be that was only believed dead."""
        theirs = [name for name in NAMES if name.partition("/")[0] == owner]
        assert self.run(self.stream.take_over(owner)) == sum(len(self.held[name]) for name in theirs)
        for name in theirs:
            for each in list(self.held[name]):
                self.hand_on(name, each, "the process that held it died", most=MAX_DELIVERIES)

    @rule()
    def sweep_everything(self) -> None:
        self.run(self.stream.sweep_idle(timedelta(0)))
        everything = [(each, name) for name in NAMES for each in self.held[name]]
        for each, holder in sorted(everything, key=lambda pair: as_pair(pair[0])):
            self.hand_on(holder, each, "it was not acknowledged in time", most=MAX_DELIVERIES)

    @rule()
    def sweep_in_vain(self) -> None:
        assert 200_000 < self.run(self.stream.sweep_idle()) <= 300_000

    @rule(name=names)
    def leave(self, name: str) -> None:
        assert self.run(self.consumers[name].leave()) == len(self.held[name])
        self.waiting += [self.drop(name, each) for each in list(self.held[name])]

    @rule(name=names, count=st.integers(1, 4))
    def restart(self, name: str, count: int) -> None:
        """The consumer begins anew under its name, and gets all that it held."""
        self.consumers[name] = self.new_consumer(name)
        found: list[Message] = []
        while len(found) < len(self.held[name]):
            messages = self.run(self.consumers[name].read(count, 0))
            assert messages
            found += messages
        assert {message.id: as_item(message) for message in found} == self.held[name]

    @precondition(lambda self: self.dead)
    @rule(data=st.data(), remove=st.booleans())
    def settle_dead_letters(self, data: st.DataObject, *, remove: bool) -> None:
        letters = self.run(self.stream.dead_letters.page()).letters
        chosen = data.draw(st.sets(st.integers(0, len(letters) - 1)))
        call = self.stream.dead_letters.remove if remove else self.stream.dead_letters.replay
        assert self.run(call([letters[n].id for n in sorted(chosen)])) == len(chosen)
        settled = [self.dead[n].n for n in sorted(chosen)]
        self.dead = [letter for n, letter in enumerate(self.dead) if n not in chosen]
        if remove:
            self.done += settled
        else:
            self.waiting += [Item(n, 1) for n in settled]

    @rule(by=st.integers(1, 1000))
    def pass_time(self, by: int) -> None:
        self.clock.advance(timedelta(milliseconds=by))

    @invariant()
    def the_status_is_right(self) -> None:
        status, pending = self.run(self.stream.status()), sum(map(len, self.held.values()))
        assert status[:4] == (len(self.waiting) + pending, pending, len(self.waiting), len(self.dead))
        counts = {each.name: each.pending for each in status.consumers}
        assert all(counts.get(name, 0) == len(self.held[name]) for name in NAMES)

    @invariant()
    def dead_letters_say_why(self) -> None:
        letters = self.run(self.stream.dead_letters.page()).letters
        found = [(int(each.fields[b"n"]), each.deliveries, each.reason, each.at) for each in letters]
        assert [(n, deliveries, reason) for n, deliveries, reason, _ in found] == [each[:3] for each in self.dead]
        assert [round(at.timestamp() * 1000) for *_, at in found] == [each.at_ms for each in self.dead]

    @invariant()
    def nothing_is_lost_and_nothing_is_double(self) -> None:
        alive = [item.n for item in self.waiting] + [item.n for held in self.held.values() for item in held.values()]
        assert sorted(alive + [each.n for each in self.dead] + self.done) == list(range(self.added))


def as_item(message: Message) -> Item:
    return Item(int(message.fields[b"n"]), message.deliveries)


def as_pair(message_id: str) -> tuple[int, int]:
    ms, _, sequence = message_id.partition("-")
    return int(ms), int(sequence)


def test_a_stream_behaves_like_the_model(embedded_url: str):
    StreamMachine.url = embedded_url
    run_state_machine_as_test(
        StreamMachine, settings=settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
    )
