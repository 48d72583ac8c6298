"""Requests that are held up between their permit and their sending, as the upstream sees them."""

import asyncio
import heapq
from datetime import timedelta
from itertools import count

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.primitives.limiter.conftest import SECOND, rules
from tidegate.core.clock import ManualClock, milliseconds
from tidegate.core.errors import GrantVoid
from tidegate.core.ids import new_id
from tidegate.primitives.limiter import Grant, Limit, Limiter, Priority
from tidegate.primitives.limiter.ledger import GrantedRequests
from tidegate.primitives.limiter.queue import CallerQueue, Waiter
from tidegate.storage.valkey import Valkey

LIMIT = 20
SETTINGS = rules(Limit(name="second", permits=LIMIT, window=SECOND))
GUARD_MS = milliseconds(SETTINGS.guard)

Question = tuple[int, list[tuple[int, int]]]
"""When permits are asked for, and for each how long its request is held up and is then under way."""

requests = st.tuples(st.sampled_from([0, 1, 49, 50, 51, 400, 1069, 1100]), st.integers(0, GUARD_MS))
questions: st.SearchStrategy[list[Question]] = st.lists(
    st.tuples(st.sampled_from([0, 50, 60, 600, 1000, 1060, 1080]), st.lists(requests, min_size=1, max_size=30)),
    min_size=1,
    max_size=6,
)


async def arrivals_of(url: str, asked: list[Question]) -> list[int]:
    """When requests arrive whose permits are used in the moment in which they leave."""
    valkey, clock = await Valkey.connect(url), ManualClock()
    limiter = Limiter(valkey, valkey.unit(new_id()), clock, SETTINGS, stopwatch=lambda: float(clock.pinned_ms))
    began, leaving, arrived = clock.pinned_ms, list[tuple[int, int, int, Grant]](), list[int]()

    numbers = count()  # grants that leave in the same millisecond have no order of their own

    def let_leave(until_ms: int) -> None:
        while leaving and leaving[0][0] <= until_ms:
            at_ms, _, under_way_ms, grant = heapq.heappop(leaving)
            clock.advance(timedelta(milliseconds=at_ms - clock.pinned_ms))
            try:
                grant.use()
            except GrantVoid:
                continue
            arrived.append(at_ms - began + under_way_ms)
        clock.advance(timedelta(milliseconds=until_ms - clock.pinned_ms))

    for wait_ms, wanted in asked:
        let_leave(clock.pinned_ms + wait_ms)
        for grant, (held_ms, under_way_ms) in zip((await limiter.take(len(wanted))).grants, wanted, strict=False):
            heapq.heappush(leaving, (clock.pinned_ms + held_ms, next(numbers), under_way_ms, grant))
    let_leave(clock.pinned_ms + 10_000)
    await valkey.close()
    return sorted(arrived)


def test_no_second_of_the_upstream_exceeds_the_limit(embedded_url: str):
    @settings(max_examples=examples(40), deadline=None, phases=(Phase.reuse, Phase.generate))
    @given(asked=questions)
    def check(asked: list[Question]) -> None:
        arrived = asyncio.run(arrivals_of(embedded_url, asked))
        for first in arrived:
            assert sum(first <= each < first + 1000 for each in arrived) <= LIMIT

    check()


async def test_a_delayed_process_requests_no_more_permits_than_it_used():
    """What it cannot use is lost to all others."""
    now_ms = 0.0
    line = CallerQueue(Priority.LOW, lambda: now_ms)
    for _ in range(100):
        line.join(Waiter(1), in_front=False)

    def asked(used: int) -> int:
        """For how many it asks; it gets them all, and uses so many in time."""
        nonlocal now_ms
        waiting, wanted = list(line.waiting), len(line.demand().costs)
        line.hand_out(GrantedRequests(wanted, wanted, 0, now_ms + 50, 0))
        for n, waiter in enumerate(waiting[:wanted]):
            now_ms += 60 if n == used else 0
            try:
                waiter.granted.result().use()
            except GrantVoid:
                line.join(Waiter(1), in_front=True)
        return wanted

    assert [asked(used) for used in (7, 7, 14, 20, 0, 1, 2)] == [100, 7, 14, 28, 20, 1, 2]
