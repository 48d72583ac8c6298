"""Characters change by themselves, as a Poisson process does, and what they are at any moment can be told."""

import statistics
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.examples import examples
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.game import State, Tempo, World, WorldShape
from tidegate_simulators.game.names import name_of, subject_of

HOUR_MS = 3_600_000
NOW_MS = 1_767_225_600_000
ALL_HOURLY = WorldShape(missing=0, tempi=(Tempo(share=1, every_s=3_600, spread=1),))


def state(world: World, subject: int, at_ms: int) -> State:
    found = world.state(subject, at_ms)
    assert found is not None
    return found


def changes(world: World, subject: int, start_ms: int, end_ms: int) -> list[int]:
    """Every change after `start_ms` and up to `end_ms`."""
    found: list[int] = []
    at_ms = world.next_change(subject, start_ms)
    while at_ms is not None and at_ms <= end_ms:
        found.append(at_ms)
        at_ms = world.next_change(subject, at_ms)
    return found


@given(subject=some.integers(1, 18_000_000), steps=some.lists(some.integers(0, 9 * HOUR_MS), max_size=30))
@settings(max_examples=examples(30))
def test_a_version_never_decreases_and_increases_exactly_with_each_change(subject: int, steps: list[int]):
    world, at_ms = World(ALL_HOURLY), NOW_MS
    before = state(world, subject, at_ms)
    for step in steps:
        at_ms += step
        now = state(world, subject, at_ms)

        assert now.version >= before.version
        assert (now.version > before.version) == (now.changed_ms > before.changed_ms)
        assert before.changed_ms <= now.changed_ms <= at_ms
        before = now


@given(subject=some.integers(1, 18_000_000), at_ms=some.integers(0, 2 * NOW_MS))
@settings(max_examples=examples(30))
def test_the_next_change_is_when_the_version_changes_and_not_before(subject: int, at_ms: int):
    world = World(ALL_HOURLY)
    following = world.next_change(subject, at_ms)

    assert following is not None
    assert following > at_ms
    assert state(world, subject, following - 1) == state(world, subject, at_ms)
    assert state(world, subject, following).changed_ms == following
    assert state(world, subject, following).version > state(world, subject, at_ms).version


def test_past_states_are_reproducible_from_the_seed():
    one, other, unknown_caller = (
        World(ALL_HOURLY),
        World(ALL_HOURLY),
        World(WorldShape(seed=2, missing=0, tempi=ALL_HOURLY.tempi)),
    )
    subjects = range(1, 200)

    assert [one.state(s, NOW_MS) for s in subjects] == [other.state(s, NOW_MS) for s in reversed(subjects)][::-1]
    assert [one.state(s, NOW_MS) for s in subjects] != [unknown_caller.state(s, NOW_MS) for s in subjects]


def test_changes_are_a_poisson_process():
    """As many as expected, as scattered as expected (the variance of their number is its mean), with no memory."""
    world, hours = World(ALL_HOURLY), 20
    counts = [len(changes(world, subject, NOW_MS, NOW_MS + hours * HOUR_MS)) for subject in range(1, 801)]
    waits = [(world.next_change(subject, NOW_MS) or 0) - NOW_MS for subject in range(1, 4_001)]

    assert statistics.mean(counts) == pytest.approx(hours, rel=0.03)
    assert statistics.variance(counts) == pytest.approx(hours, rel=0.15)
    assert statistics.mean(waits) == pytest.approx(HOUR_MS, rel=0.06)
    assert statistics.stdev(waits) == pytest.approx(HOUR_MS, rel=0.08)
    assert sum(wait > HOUR_MS for wait in waits) / len(waits) == pytest.approx(0.368, abs=0.03)


def test_a_few_characters_change_often_and_most_rarely():
    tempi = (Tempo(share=1, every_s=60), Tempo(share=8, every_s=86_400, spread=2), Tempo(share=1, every_s=None))
    world = World(WorldShape(tempi=tempi))
    intervals = [world.interval_s(subject) for subject in range(1, 5_001)]
    hot = [each for each in intervals if each is not None and each <= 180]
    cold = [each for each in intervals if each is not None and each > 180]

    assert len(hot) / 5_000 == pytest.approx(0.1, abs=0.02)
    assert intervals.count(None) / 5_000 == pytest.approx(0.1, abs=0.02)
    assert 20 <= min(hot) < 24
    assert 150 < max(hot) <= 180
    assert 43_200 <= min(cold) < max(cold) <= 172_800


def test_some_characters_never_change():
    world = World(WorldShape(missing=0, tempi=(Tempo(share=1, every_s=None),)))

    assert state(world, 5, NOW_MS) == state(world, 5, 2 * NOW_MS)
    assert state(world, 5, NOW_MS).changed_ms == 0
    assert world.next_change(5, NOW_MS) is None
    assert world.interval_s(5) is None


def test_a_fixed_share_of_the_ids_does_not_exist():
    world, other = World(WorldShape(missing=0.2)), World(WorldShape(missing=0.2))
    there = [world.exists(subject) for subject in range(1, 3_001)]

    assert there.count(False) / 3_000 == pytest.approx(0.2, abs=0.03)
    assert there == [other.exists(subject) for subject in range(1, 3_001)]
    assert there == [world.state(subject, NOW_MS) is not None for subject in range(1, 3_001)]
    assert not world.exists(0)
    assert not world.exists(18_000_001)
    assert world.state(18_000_001, NOW_MS) is None


def test_a_manual_change_counts_from_its_time():
    world = World(ALL_HOURLY)
    before = state(world, 7, NOW_MS)

    world.change(7, NOW_MS)
    world.change(7, NOW_MS - 5)  # not before the last one

    after = state(world, 7, NOW_MS)
    assert (after.version, after.changed_ms) == (before.version + 2, NOW_MS)
    assert state(world, 7, NOW_MS - 1) == state(World(ALL_HOURLY), 7, NOW_MS - 1)
    assert state(world, 8, NOW_MS) == state(World(ALL_HOURLY), 8, NOW_MS)


@given(steps=some.lists(some.tuples(some.integers(0, HOUR_MS), some.booleans()), max_size=40))
@settings(max_examples=examples(20))
def test_a_version_never_decreases_with_manual_changes(steps: list[tuple[int, bool]]):
    world, at_ms, version = World(ALL_HOURLY), NOW_MS, 0
    for step, by_hand in steps:
        at_ms += step
        if by_hand:
            world.change(3, at_ms)
        now = state(world, 3, at_ms).version
        assert now >= version + by_hand
        version = now


def test_an_unknown_character_cannot_be_changed():
    with pytest.raises(NotFound, match="there is no character 18000001"):
        World().change(18_000_001, NOW_MS)
    with pytest.raises(NotFound):
        World().at_version(18_000_001, 1)


@pytest.mark.full
def test_characters_use_no_memory():
    world = World()
    world.state(1, NOW_MS)
    tracemalloc.start()
    try:
        for subject in range(1, 18_000_000, 1_201):
            world.state(subject, NOW_MS)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@given(subject=some.integers(1, (1 << 30) - 1))
@settings(max_examples=examples(30))
def test_a_name_maps_to_its_character_in_any_spelling(subject: int):
    name = name_of(subject)

    assert name.isalpha()
    assert name.istitle()
    assert subject_of(name) == subject_of(name.upper()) == subject


@given(text=some.text(max_size=14))
@settings(max_examples=examples(30))
def test_an_invalid_name_maps_to_nothing(text: str):
    found = subject_of(text)
    assert found is None or name_of(found).lower() == text.lower()


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        ({"subjects": 0}, "subjects is 0"),
        ({"subjects": 1 << 31}, "subjects is"),
        ({"missing": 1.1}, "missing is 1.1"),
        ({"tempi": ()}, r"tempi is \(\)"),
        ({"body_bytes": 9_000, "kept_bytes": 8_000}, "body_bytes is 9000"),
        ({"kept_bytes": 100}, "kept_bytes is 100"),
        ({"speed": -1}, "speed is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_an_invalid_world_is_refused(shape: dict[str, int], wrong: str):
    with pytest.raises(InvalidArgument, match=wrong):
        WorldShape(**shape)  # pyright: ignore[reportArgumentType]


def test_an_invalid_speed_is_refused():
    for nonsense in ({"share": 0, "every_s": 1}, {"share": 1, "every_s": 0}, {"share": 1, "every_s": 1, "spread": 0.5}):
        with pytest.raises(InvalidArgument):
            Tempo(**nonsense)
