"""What holds for all lists, windows and histories, not only for those somebody thought of."""

from hypothesis import given, settings
from hypothesis import strategies as some

from tests.examples import examples
from tests.simulators.github.client import SMALL
from tidegate_simulators.github import LimitSettings, WorldShape
from tidegate_simulators.github.calls import Call, Caller, Owner
from tidegate_simulators.github.commits import History
from tidegate_simulators.github.config import Sizes
from tidegate_simulators.github.pages import Ordered, decode_cursor, encode_cursor
from tidegate_simulators.github.routes import Match
from tidegate_simulators.github.secondary import Sliding
from tidegate_simulators.github.threads import Threads
from tidegate_simulators.github.windows import Windows
from tidegate_simulators.github.world import World


@given(
    keys=some.lists(some.integers(0, 20), min_size=1, max_size=40),
    inserted=some.lists(some.integers(0, 30), max_size=20),
    size=some.integers(1, 7),
    descending=some.booleans(),
)
@settings(max_examples=examples(30))
def test_paging_by_cursor_loses_nothing_while_items_are_added(
    keys: list[int], inserted: list[int], size: int, descending: bool
):
    """Between any two pages something is inserted anywhere; what was there from the start is seen exactly once."""
    key_of = dict(enumerate(keys))
    seen: list[int] = []
    cursor = ""
    while True:
        entries = Ordered(sorted(key_of, key=lambda i: (key_of[i], i)), lambda i: (key_of[i], i), descending)
        start = entries.offset_after(decode_cursor(cursor)) if cursor else 0
        page = entries.part(start, size)
        if not page:
            break
        seen += page
        cursor = encode_cursor(entries.key(page[-1]))
        if inserted:
            key_of[len(key_of)] = inserted.pop()

    assert len(seen) == len(set(seen))
    assert set(range(len(keys))) <= set(seen)


@given(calls=some.lists(some.tuples(some.floats(0, 8), some.integers(0, 3)), max_size=60), quota=some.integers(1, 6))
@settings(max_examples=examples(30))
def test_a_window_never_grants_more_than_its_limit(calls: list[tuple[float, int]], quota: int):
    """Against a model: whole windows that begin with the first call after the last one ended."""
    windows = Windows(LimitSettings(quota=quota, window_s=10))
    caller = Caller(Owner("user", 1, "tide"), "tide#0")
    at, used, ends, spent = 1_000.0, 0, 0.0, 0
    for pause, cost in calls:
        at += pause
        call = Call("GET", "", "/", "", {}, Match("user"), {}, b"", caller, at)
        if at >= ends:
            used = 0
        left = windows.of(caller, "core").left(at)
        assert left == max(0, quota - used)
        if left and cost:
            if at >= ends:
                ends = -(-(at + 10) // 1)
            used += cost
            spent += cost
            windows.charge(call, cost)
    assert sum(window.used for window in windows.uses(at)) == spent


@given(steps=some.lists(some.tuples(some.floats(0, 40), some.integers(1, 5)), max_size=60))
@settings(max_examples=examples(30))
def test_a_sliding_sum_is_that_of_the_last_minute(steps: list[tuple[float, int]]):
    sums, at, history = Sliding(60), 0.0, list[tuple[float, int]]()
    for pause, amount in steps:
        at += pause
        history.append((at, amount))

        assert sums.add(at, amount) == sum(a for t, a in history if t > at - 60)


@given(
    count=some.integers(0, 30),
    pushes=some.lists(some.tuples(some.booleans(), some.integers(1, 3), some.integers(1, 900)), max_size=6),
)
@settings(max_examples=examples(30))
def test_a_history_has_every_commit_once_and_children_before_parents(count: int, pushes: list[tuple[bool, int, int]]):
    history, now, made = History(7, count, 0, 1_000), 1_000, count
    for late, commits, age in pushes:
        now += 10
        if late:
            made += len(history.push_late(commits, now - age, now))
        else:
            made += len([history.push(now) for _ in range(commits)])

    walked = [history.sha(ref) for ref in history.walk(history.head)]

    assert len(walked) == len(set(walked)) == made
    place = {sha: i for i, sha in enumerate(walked)}
    for ref in history.walk(history.head):
        assert all(place[parent] > place[history.sha(ref)] for parent in history.parents(ref))


@given(issues=some.integers(0, 60), pulls=some.integers(0, 60), key=some.integers(0, 1 << 40))
@settings(max_examples=examples(30))
def test_issues_and_pull_requests_share_one_number_sequence(issues: int, pulls: int, key: int):
    threads = Threads(key, Sizes(issues=issues, pulls=pulls), 0, 10**8)

    assert len(threads.numbers()) == issues + pulls
    assert len(threads.pulls()) == pulls
    for number in threads.numbers():
        assert 0 <= threads.created[number] <= threads.updated[number] <= 10**8
        assert threads.closed[number] == 0 or threads.created[number] <= threads.closed[number]


@given(seed=some.integers(0, 1 << 60))
@settings(max_examples=examples(10))
def test_any_seed_gives_unique_logins_and_names(seed: int):
    world = World(WorldShape(seed=seed, users=8, sizes=SMALL))

    names = [repository.full_name.lower() for repository in world.all_repositories()]
    assert len(set(world.logins())) == 8
    assert len(set(names)) == len(names)
    assert all(world.repository_by_id(r.id) is r for r in world.all_repositories())
