"""The cache in memory against a plain model of one."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.snapshots.kept import Kept
from tidegate.snapshots.local import LocalCache, Place

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


def entry(size: int) -> Kept:
    return Kept(
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
def test_it_holds_what_was_read_last_within_its_bytes_and_its_time(steps: list[tuple[str, Place, int]]):
    now = [0.0]
    cache = LocalCache(most_bytes=MOST, keep_ms=KEEP_MS, now_ms=lambda: now[0])
    model: dict[Place, tuple[Kept, float]] = {}  # the least recently read first
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


def test_what_does_not_fit_is_not_held():
    cache = LocalCache(most_bytes=100, keep_ms=1)
    cache.put(("k", "a"), entry(200))
    assert (len(cache), cache.bytes) == (0, 0)
