"""Many schedules, and what came of them."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from chaos.schedules.environment import InMemory
from chaos.schedules.plan import ActionKind, Step, plan, shrunk
from chaos.schedules.world import PromiseBroken, World


class Failure(msgspec.Struct, frozen=True):
    """A schedule that broke a guarantee, reduced to its relevant steps."""

    seed: int
    number: int
    broken: str
    steps: list[Step]

    def __str__(self) -> str:
        lines = [f"schedule {self.number} of seed {self.seed}: {self.broken}"]
        return "\n".join(
            lines + [f"    {ActionKind(action).name.lower():<11}{detail}" for action, detail in self.steps]
        )


class Tally(msgspec.Struct):
    """What happened in so many schedules."""

    schedules: int = 0
    steps: int = 0
    happened: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    failures: list[Failure] = msgspec.field(default_factory=list[Failure])

    def add(self, other: "Tally") -> None:
        """Add the result of another part of the campaign."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.happened = dict(Counter(self.happened) + Counter(other.happened))
        self.failures += other.failures


def conduct(seed: int, numbers: Iterable[int]) -> Tally:
    """Run the schedules with these numbers; ends with the first that breaks a guarantee."""
    world, tally = World(InMemory()), Tally()
    for number in numbers:
        steps = plan(seed, number)
        tally.schedules += 1
        tally.steps += len(steps)
        try:
            world.play(steps)
        except PromiseBroken:
            tally.failures.append(_failure(world, seed, number, steps))
            break
    tally.happened = dict(world.happened)
    return tally


def _failure(world: World, seed: int, number: int, steps: list[Step]) -> Failure:
    def broken(some: list[Step]) -> str | None:
        try:
            world.play(some)
        except PromiseBroken as error:
            return str(error)
        return None

    few = shrunk(steps, lambda some: broken(some) is not None)
    return Failure(seed, number, broken(few) or "", few)
