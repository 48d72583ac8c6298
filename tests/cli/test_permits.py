"""What the gate's figures mean for a forecast, and in words."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.cli.views import NOW
from tidegate.engine.commands.permits import Supply, permit_text, permits_of, supplies
from tidegate.primitives.gate import BucketStatus, CredentialLimits, CredentialStatus, PoolStatus

LIMITS = CredentialLimits(concurrency=5, per_minute=600, floor=100)


IDLE = CredentialStatus(
    name="user-1",
    in_flight=0,
    concurrency=5,
    concurrency_now=5,
    per_minute=600,
    per_minute_now=600,
    retired=False,
    blocked_in_ms=0,
    buckets=[],
)


def pool(*, name: str = "core", retired: bool = False, blocked_in_ms: int = 0, **bucket: Any) -> PoolStatus:
    known: dict[str, Any] = {"limit": 5_000, "remaining": 900, "resets_in_ms": 60_000} | bucket
    core = BucketStatus(name=name, held=10, lost=5, calls_now=1, **known)
    one = msgspec.structs.replace(IDLE, in_flight=3, retired=retired, blocked_in_ms=blocked_in_ms, buckets=[core])
    return PoolStatus(credentials=[one], waiting={})


def supply(now: int, opens_in_s: float) -> list[Supply]:
    one = Supply(now=now, per_window=4_900, opens_in_s=opens_in_s, window_s=3_600, per_minute=600, concurrency=5)
    return [one]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (pool(), supply(900 - 10 - 5 - 100, 60)),
        (pool(remaining=50), supply(0, 60)),
        (pool(remaining=5_000, resets_in_ms=None), supply(5_000 - 10 - 5 - 100, 3_600)),
        (pool(blocked_in_ms=5_000), supply(0, 5)),
        (pool(retired=True), []),
        (pool(limit=None, remaining=None, resets_in_ms=None), []),
        (PoolStatus(credentials=[], waiting={}), []),
    ],
)
def test_permits_that_are_held_lost_or_reserved_cannot_be_spent(status: PoolStatus, expected: list[Supply]):
    assert supplies(status, "core", LIMITS) == expected
    assert supplies(status, "graphql", LIMITS) == []


def test_a_small_limit_keeps_a_small_reserve():
    (one,) = supplies(pool(limit=60, remaining=60), "core", LIMITS)
    assert (one.now, one.per_window) == (60 - 10 - 5 - 1, 59)


def test_credentials_for_graphql_have_a_concurrency_of_one():
    (queries,) = supplies(pool(name="graphql"), "graphql", LIMITS)
    (calls,) = supplies(pool(), "core", LIMITS)
    assert (queries.concurrency, calls.concurrency) == (1, 5)


def test_credentials_are_shown_with_their_display_names():
    (one,) = permits_of(pool(), {"user-1": "token of mona"}, NOW)
    assert (one.credential, one.left, one.in_flight) == ("token of mona", 885, 3)
    assert one.resets_at == NOW + timedelta(minutes=1)
    assert permit_text(one, NOW).startswith("885 of 5,000 left, window ends ")
    (unknown_caller,) = permits_of(pool(), {}, NOW)
    assert unknown_caller.credential == "user-1"


def test_an_unused_credential_has_no_known_allowance():
    fresh = IDLE
    (one,) = permits_of(PoolStatus(credentials=[fresh], waiting={}), {}, NOW)
    assert permit_text(one, NOW) == "not known before the first call"
