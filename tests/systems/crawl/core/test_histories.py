"""Any history of arrivals, failures, replays and runs: the order holds at every moment, and the newest wins in the end.

The model knows what arrived, in which order, and nothing of how it is applied.
"""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.systems.crawl.core.harness import CrawlHarness, content, later
from tidegate.systems.crawl.raws import Raw
from tidegate.systems.crawl.stages import STAGES, RawState, Stage, earlier

RUNS, PRODUCTS, SAYINGS = 3, 2, ("red", "blue", "green")
_examples = count()


class Step(NamedTuple):
    """One thing that happens; the numbers say to whom."""

    what: str
    run: int = 0
    product: int = 0
    stage: int = 0
    says: int = 0


def steps(what: str) -> st.SearchStrategy[Step]:
    numbers = st.integers(0, RUNS - 1), st.integers(0, PRODUCTS - 1), st.integers(0, 2), st.integers(0, 2)
    return st.builds(Step, st.just(what), *numbers)


ARRIVALS = st.lists(
    st.one_of(*([steps("answer")] * 4), steps("lack"), steps("drain"), steps("wait"), steps("spoil"), steps("replay")),
    min_size=4,
    max_size=24,
)


class History:
    """What happened so far, and what must be true of it."""

    def __init__(self, harness: CrawlHarness) -> None:
        self.harness, self._tag = harness, f"x{next(_examples)}"
        self.products = [f"{self._tag}-p{n}" for n in range(PRODUCTS)]
        self.runs: list[int] = []
        self.unfinished = set[tuple[int, str, Stage]]()
        self.last = dict[tuple[str, Stage], str]()
        self.lacks = set[tuple[str, Stage]]()
        self.was_dead = set[int]()
        self.seen = set[int]()

    async def begin(self) -> None:
        for n in range(RUNS):
            run_id = await self.harness.begin(*self.products, crawl=f"{self._tag}-{n}")
            self.runs.append(run_id)
            self.unfinished |= {(run_id, product, stage) for product in self.products for stage in STAGES}

    async def do(self, step: Step) -> None:
        run_id, product, stage = self.runs[step.run], self.products[step.product], STAGES[step.stage]
        match step.what:
            case "answer":
                await self.answer(run_id, product, stage, SAYINGS[step.says])
            case "lack":
                await self.lack(run_id, product, stage)
            case "spoil":  # or heal
                self.harness.site.sick ^= {SAYINGS[step.says]}
            case "replay":
                await self.harness.raws.replay()
            case "wait":
                await self.drain(waits=True)
            case _:
                await self.drain()

    async def answer(self, run_id: int, product: str, stage: Stage, said: str) -> None:
        if (run_id, product, stage) in self.unfinished:  # a job ends once
            self.unfinished.remove((run_id, product, stage))
            await self.harness.answer(run_id, stage, product, said)
            self.last[product, stage] = said

    async def lack(self, run_id: int, product: str, stage: Stage) -> None:
        if (run_id, product, stage) in self.unfinished:
            self.unfinished.remove((run_id, product, stage))
            await self.harness.lack(run_id, stage, product)
            self.lacks.add((product, stage))

    async def drain(self, *, waits: bool = False) -> None:
        if waits:
            later(self.harness.database)
        await self.harness.processor.drain()
        await self.check()

    async def raws(self) -> list[Raw]:
        found = [(await self.harness.raws.page(run_id=run_id)).raws for run_id in self.runs]
        return sorted((raw for raws in found for raw in raws), key=lambda raw: raw.id)

    async def check(self) -> None:
        raws = await self.raws()
        for raw in raws:
            self.check_order(raw, raws)
        self.was_dead |= {raw.id for raw in raws if raw.state is RawState.FAILED}
        self.seen = {raw.id for raw in raws if raw.applied_as is not None}
        for product in self.products:
            await self.check_count(product, raws)

    def check_order(self, raw: Raw, raws: Sequence[Raw]) -> None:
        """No stage was applied before an earlier one, and none waits without a reason."""
        stages = earlier(Stage(raw.stage))
        before = [other for other in raws if other.product_id == raw.product_id and other.stage in stages]
        own = {other.stage: other for other in before if other.run_id == raw.run_id}
        jobs = [stage for stage in stages if (raw.run_id, raw.product_id, stage) in self.unfinished]
        if raw.applied_as is not None and raw.id not in self.seen:
            assert not jobs, f"{raw.stage} was applied while {jobs} was under way"
            for other in own.values():
                assert other.state is not RawState.PENDING
                overtaken = other.applied_as is not None and other.applied_as > raw.applied_as
                assert not overtaken or other.id in self.was_dead, "an inversion"
        if raw.state is RawState.PENDING:
            held = [other for other in before if other.state is RawState.PENDING and other.run_id <= raw.run_id]
            assert raw.attempts or jobs or held, f"{raw.stage} waits for nothing"

    async def check_count(self, product: str, raws: Sequence[Raw]) -> None:
        numbers = sorted(raw.applied_as for raw in raws if raw.product_id == product and raw.applied_as is not None)
        assert numbers == list(range(1, len(numbers) + 1)), "each number once"
        if numbers:
            assert (await self.harness.product(product)).applied == len(numbers)

    async def end(self) -> None:
        """Everything heals: then everything is applied, and a product says what the newest answers say."""
        for run_id, product, stage in sorted(self.unfinished):
            await self.lack(run_id, product, stage)
        self.harness.site.sick.clear()
        await self.drain(waits=True)
        await self.harness.raws.replay()
        await self.drain(waits=True)
        raws = await self.raws()
        assert {raw.state for raw in raws} <= {RawState.PROCESSED}
        for product in self.products:
            if any(raw.product_id == product for raw in raws):
                found = await self.harness.product(product)
                for stage, part in zip(STAGES, (found.mini_shop, found.detail, found.option), strict=True):
                    said = self.last.get((product, stage))
                    assert part == (None if said is None else content(stage, product, said))
                assert {(product, stage) for stage in found.missing} <= self.lacks


async def play(harness: CrawlHarness, example: Sequence[Step]) -> None:
    harness.site.sick.clear()
    history = History(harness)
    await history.begin()
    for step in example:
        await history.do(step)
    await history.end()


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(example=ARRIVALS)
async def test_order_is_kept_and_the_newest_wins_after_any_history(local: CrawlHarness, example: list[Step]):
    await play(local, example)


@pytest.mark.every_server
@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(example=ARRIVALS)
async def test_order_is_kept_on_every_server(harness: CrawlHarness, example: list[Step]):
    await play(harness, example)
