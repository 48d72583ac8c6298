"""The ranking against a plain list of events, through repetition, disorder, crashes, losses and the passing of time."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.servers.migrated import migrated_file
from tests.servers.valkey import empty_valkey
from tests.systems.ranking.harness import NOW, SEOUL, RankingHarness, expected, standing
from tidegate.core.ids import new_id
from tidegate.systems.ranking import score_store
from tidegate.systems.ranking.model import CountedEvent, RankingPeriod, Window, kept_windows, windows_at

facts = st.tuples(
    st.sampled_from(["a", "b", "c", "ä", "a a"]),
    # Around the turn of a year, in steps so coarse that several happen in the same moment.
    st.integers(-40, 3).map(lambda steps: NOW + steps * timedelta(hours=7)),
    st.integers(1, 3),
)
which = st.integers(0, 11)
"""An event is told again with the same content; so there is one list of them, from which steps choose."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.lists(which, min_size=1, max_size=4)),
        st.tuples(st.just("deliver"), st.lists(which, min_size=1, max_size=4)),
        st.tuples(st.just("die before the server"), which),
        st.tuples(st.sampled_from(["lose everything", "replay", "keep", "rebuild"]), st.none()),
        st.tuples(st.just("advance"), st.integers(1, 60).map(lambda hours: timedelta(hours=hours))),
    ),
    min_size=3,
    max_size=12,
)


class Model:
    """Every event that was counted, with the windows in which it was in time."""

    def __init__(self, events: list[CountedEvent]) -> None:
        self.events = events
        self.counted: dict[str, tuple[CountedEvent, list[Window]]] = {}
        self.undelivered: set[int] = set()

    def count(self, each: CountedEvent, harness: RankingHarness) -> None:
        in_time = [window for window in windows_at(each.at, SEOUL.zone) if window.kept_until > harness.clock.now()]
        if in_time:
            self.counted.setdefault(each.event_id, (each, in_time))

    def ranking(self, window: Window) -> list[tuple[str, int]]:
        inside = [each for each, windows in self.counted.values() if window in windows]
        return expected(inside, SEOUL, window.period, window.starts_at)


async def take(step: tuple[str, Any], harness: RankingHarness, model: Model) -> None:
    match step:
        case ("deliver", several):
            for n in several:
                model.count(model.events[n], harness)
                await harness.deliver(model.events[n])
            model.undelivered -= set(several)
        case ("die before the server", n):
            model.count(model.events[n], harness)
            model.undelivered.add(n)
            await harness.database.transaction(score_store.count, SEOUL, [model.events[n]])
        case ("lose everything", _):
            await harness.valkey.execute("DEL", *await every_key(harness))
        case ("replay", _):
            for each, _ in list(model.counted.values()):
                await harness.deliver(each)
            model.undelivered.clear()
        case ("keep", _):
            await harness.keeper.fire()
        case ("rebuild", _):
            await harness.ranking.rebuild(SEOUL.name)
            model.undelivered.clear()
        case ("advance", by):
            harness.clock.advance(by)
        case _:
            raise AssertionError(step)


async def every_key(harness: RankingHarness) -> list[str]:
    unit = harness.valkey.unit(SEOUL.name)
    return [unit.key("ranking:epoch"), *(await harness.valkey.execute("KEYS", f"{unit.key('ranking:')}*"))]


async def check(harness: RankingHarness, model: Model) -> None:
    """What is shown is true, or nobody can say."""
    for window in kept_windows(harness.clock.now(), SEOUL.zone):
        top = await harness.ranking.top(SEOUL.name, window.period, on=window.first, limit=1000)
        shown = [(entry.member, entry.score) for entry in top.entries]
        assert top.degraded or shown == model.ranking(window), window.name


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(told=st.lists(facts, min_size=12, max_size=12), steps=steps)
async def test_after_any_operations_the_ranking_is_that_of_the_events(
    told: list[tuple[str, datetime, int]], steps: list[tuple[str, Any]], embedded_url: str, tmp_path: Path
):
    url = await migrated_file(tmp_path / f"{new_id()}.db")
    async with empty_valkey(embedded_url) as valkey, standing(url, valkey) as harness:
        model = Model([CountedEvent(event_id=str(n), member=m, at=at, amount=a) for n, (m, at, a) in enumerate(told)])
        for step in steps:
            await take(step, harness, model)
            if not model.undelivered:
                await check(harness, model)
        await take(("deliver", sorted(model.undelivered)), harness, model)  # the outbox still has them
        await harness.keeper.fire()
        await check(harness, model)
        assert not (await harness.ranking.top(SEOUL.name)).degraded
        stored = await harness.stored()
        await harness.database.transaction(score_store.recount, SEOUL)
        assert [row for row in await harness.stored() if row not in stored] == [], "a recount finds nothing else"
        for period in RankingPeriod:
            assert await harness.shown(period, harness.clock.now()) == model.ranking(
                windows_at(harness.clock.now(), SEOUL.zone)[list(RankingPeriod).index(period)]
            )
