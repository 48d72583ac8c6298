"""The cache in memory against a plain model of one."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidegate.systems.snapshots.cache import CachedSnapshot, CacheKey, LocalCache

KEYS = st.sampled_from([("k", name) for name in "abcde"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 3000)),
        st.tuples(st.just("get"), KEYS, st.just(0)),
        st.tuples(st.just("forget"), KEYS, st.just(0)),
        st.tuples(st.just("pass"), KEYS, st.integers(0, 120)),
        st.tuples(st.just("clear"), KEYS, st.just(0)),
    ),
    max_size=60,
)
MOST, KEEP_MS = 5_000, 100


def entry(size: int) -> CachedSnapshot:
    return CachedSnapshot(
        version=1,
        hash=None,
        upstream_id=None,
        updated_ms=None,
        checked_ms=None,
        missing_ms=None,
        head=b"x" * size,
        body_size=size,
    )


@given(STEPS)
def test_the_cache_keeps_the_last_read_entries_within_its_size_and_age(steps: list[tuple[str, CacheKey, int]]):
    now = [0.0]
    cache = LocalCache(most_bytes=MOST, keep_ms=KEEP_MS, now_ms=lambda: now[0])
    model: dict[CacheKey, tuple[CachedSnapshot, float]] = {}  # the least recently read first
    for step, place, number in steps:
        match step:
            case "put":
                kept = entry(number)
                cache.put(place, kept)
                model.pop(place, None)
                model[place] = (kept, now[0] + KEEP_MS)
                while sum(each.size for each, _ in model.values()) > MOST:
                    model.pop(next(iter(model)))
            case "get":
                found = model.pop(place, None)
                if found is not None and now[0] < found[1]:
                    model[place] = found
                    assert cache.get(place) is found[0]
                else:
                    assert cache.get(place) is None
            case "forget":
                cache.forget(place)
                model.pop(place, None)
            case "pass":
                now[0] += number
            case _:
                cache.clear()
                model.clear()
        assert len(cache) == len(model)
        assert cache.bytes == sum(each.size for each, _ in model.values()) <= MOST


def test_an_entry_that_is_too_large_is_not_kept():
    cache = LocalCache(most_bytes=100, keep_ms=1)
    cache.put(("k", "a"), entry(200))
    assert (len(cache), cache.bytes) == (0, 0)


def test_an_entry_read_late_in_its_lifetime_is_reported_once_and_an_unread_one_never():
    now = [0.0]
    cache = LocalCache(most_bytes=10_000, keep_ms=100, now_ms=lambda: now[0])
    due: list[CacheKey] = []
    cache.on_due = due.append
    cache.put(("k", "read"), entry(10))
    cache.put(("k", "left"), entry(10))

    for now[0] in (0.0, 39.0):
        assert cache.get(("k", "read")) is not None
    assert due == []
    for now[0] in (80.0, 90.0, 99.0):
        assert cache.get(("k", "read")) is not None
    assert due == [("k", "read")]
    now[0] = 100.0
    assert cache.get(("k", "read")) is None


def test_entries_stored_together_are_renewed_one_after_the_other():
    now = [0.0]
    cache = LocalCache(most_bytes=100_000, keep_ms=100, now_ms=lambda: now[0])
    due: list[CacheKey] = []
    cache.on_due = due.append
    places = [("k", str(n)) for n in range(100)]
    for place in places:
        cache.put(place, entry(10))
    told: list[int] = []
    for now[0] in (45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0):
        for place in places:
            cache.get(place)
        told.append(len(due))
    assert told[-1] == len(set(due)) == 100
    assert all(later - before < 50 for before, later in itertools.pairwise([0, *told]))
