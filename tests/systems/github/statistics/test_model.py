"""Random worlds that change at random, against the slow computation: after every computation the figures are right."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.documents.harness import ALL_STORES
from tests.systems.github.statistics import world as w
from tests.systems.github.statistics.world import TODAY, USERS, Repository, World, iso

AUTHORS = ("ann", "ann", "bob", "cat", "dan", "eve", "bot", "ghost", None)
SERVERS = [name for name in ALL_STORES if name != "sqlite"]
ITEM_KINDS = ("commit", "issue", "pull_request", "issue_comment", "review_comment", "review")


@dataclass(frozen=True)
class Put:
    """A new item, or another body of one that was there."""

    repository: int
    kind: str
    number: int
    author: str | None
    ago: timedelta
    took: timedelta | None
    merged: bool
    listed_as_pull: bool

    def body(self) -> dict[str, Any]:
        at = TODAY - self.ago
        ended = None if self.took is None else iso(at + self.took)
        match self.kind:
            case "commit":
                return w.commit(self.author, iso(at))
            case "issue":
                body = w.issue(self.author, iso(at), ended)
                return body | ({"pull_request": {"merged_at": None}} if self.listed_as_pull else {})
            case "pull_request":
                return w.pull(self.author, iso(at), ended, merged=self.merged)
            case "review":
                return w.review(self.author, iso(at))
            case _:
                return w.comment(self.author, iso(at))


@dataclass(frozen=True)
class Drop:
    """An item that is gone when its list is read the next time."""

    repository: int
    kind: str
    number: int


@dataclass(frozen=True)
class Describe:
    """A repository, which may have been gone, as it is now."""

    repository: int
    fork: bool
    stars: int
    language: str | None
    archived: bool


@dataclass(frozen=True)
class Move:
    """A repository that changes its owner or its name; with the items that are read there, or before they are."""

    repository: int
    owner: str
    name: str
    noticed: bool
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """A repository that left the list of its owner: deleted, or private."""

    repository: int


@dataclass(frozen=True)
class Event:
    user: str
    number: int
    ago: timedelta


@dataclass(frozen=True)
class Compute:
    users: tuple[str, ...]
    full: bool


@dataclass(frozen=True)
class Clock:
    """The next writers' clocks are off by this."""

    minutes: int


Step = Put | Drop | Describe | Move | Leave | Event | Compute | Clock

repositories = st.integers(0, 3)
kinds = st.sampled_from(ITEM_KINDS)
numbers = st.integers(0, 4)
ago = st.one_of(st.integers(-2, 12), st.integers(360, 380), st.integers(0, 1500)).map(lambda d: timedelta(days=d))
took = st.none() | st.integers(0, 10**6).map(lambda s: timedelta(seconds=s))
steps = st.one_of(
    st.builds(Put, repositories, kinds, numbers, st.sampled_from(AUTHORS), ago, took, st.booleans(), st.booleans()),
    st.builds(Put, repositories, kinds, numbers, st.just("ann"), ago, took, st.booleans(), st.just(False)),
    st.builds(Drop, repositories, kinds, numbers),
    st.builds(
        Describe, repositories, st.booleans(), st.integers(0, 9), st.sampled_from(["Zig", "C", None]), st.booleans()
    ),
    st.builds(
        Move, repositories, st.sampled_from(USERS), st.sampled_from("xyz"), st.booleans(), st.sets(kinds).map(tuple)
    ),
    st.builds(Leave, repositories),
    st.builds(Event, st.sampled_from(USERS), numbers, ago),
    st.builds(Compute, st.sets(st.sampled_from(USERS), min_size=1).map(tuple), st.sampled_from([False, False, True])),
    st.builds(Clock, st.integers(-300, 300)),
)


class Player:
    """Plays the steps."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.repositories = [
            Repository(id=1, owner="ann", name="x", stars=3, language="Zig"),
            Repository(id=2, owner="ann", name="y", fork=True),
            Repository(id=3, owner="bob", name="x", language="C"),
            Repository(id=4, owner="cat", name="z"),
        ]
        self.present = set(range(4))

    async def begin(self) -> None:
        for login in USERS:
            await self.world.write_profile(login)
        for found in self.repositories:
            await self.world.write_repository(found)

    async def play(self, step: Step) -> None:
        world = self.world
        match step:
            case Put():
                found = self.repositories[step.repository]
                key = (step.kind, f"{found.id}:{step.number}")
                found.bodies[key] = step.body()
                world.next_sweep()
                await world.write(world.document(*key, found.owner, found.resource, found.bodies[key]))
            case Drop():
                found = self.repositories[step.repository]
                found.bodies.pop((step.kind, f"{found.id}:{step.number}"), None)
                await world.relist(found, step.kind)
            case Describe():
                found = self.repositories[step.repository]
                found.fork, found.stars, found.language = step.fork, step.stars, step.language
                found.archived = step.archived
                self.present.add(step.repository)
                await world.write_repository(found, items=False)
            case Move():
                await self.move(step)
            case Leave():
                self.present.discard(step.repository)
                await self.list_repositories(self.repositories[step.repository].owner)
            case Event():
                await world.write_event(step.user, f"{step.user}{step.number}", iso(TODAY - step.ago))
            case Compute():
                await self.compute(step)
            case Clock():
                world.skew = timedelta(minutes=step.minutes)

    async def move(self, step: Move) -> None:
        found, former = self.repositories[step.repository], self.repositories[step.repository].owner
        others = [each for each in self.repositories if each is not found]
        if (step.owner, step.name) in {(each.owner, each.name) for each in others}:
            return
        found.owner, found.name = step.owner, step.name
        self.present.add(step.repository)
        if step.noticed:
            await self.list_repositories(former)
        await self.world.write_repository(found, items=False)
        for kind in step.kinds:
            await self.world.relist(found, kind)

    async def list_repositories(self, owner: str) -> None:
        there = [self.repositories[n] for n in sorted(self.present)]
        await self.world.list_repositories(owner, *(each for each in there if each.owner == owner))

    async def compute(self, step: Compute) -> None:
        for login in step.users:
            if step.full and login in self.world.counted:
                await self.world.statistics.recompute(login)
            else:
                await self.world.finalize(login)
            await self.world.assert_owned(login)


plays = given(steps=st.lists(steps, max_size=25), order=st.permutations(USERS))
patient = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


@settings(patient, max_examples=examples(15))
@plays
async def test_statistics_equal_a_naive_computation(small_world: World, steps: list[Step], order: list[str]):
    await compare(small_world, steps, order)


@pytest.mark.every_server
@pytest.mark.parametrize("world", SERVERS, indirect=True)
@settings(patient, max_examples=examples(3))
@plays
async def test_they_are_equal_on_every_server(world: World, steps: list[Step], order: list[str]):
    await compare(world, steps, order)


async def compare(world: World, steps: list[Step], order: list[str]) -> None:
    await world.empty()
    player = Player(world)
    await player.begin()
    for step in steps:
        await player.play(step)

    await world.finalize(*order)

    await world.assert_right()
    before = [await world.of(login) for login in USERS]
    for login in USERS:
        await world.statistics.recompute(login)
    assert [await world.of(login) for login in USERS] == before
