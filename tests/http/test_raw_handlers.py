"""Tools of raw handlers: what they remember of requests is bounded, in number and in size."""

import tracemalloc
from typing import Any

from tidegate.http.access import Access
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Role
from tidegate.http.raw_handlers import Admission
from tidegate.http.settings import HttpSettings


def scope(number: int, size: int) -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1"), (b"x-padding", b"%d" % number + b"y" * size)]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/v1/snapshots/game/1",
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "headers": headers,
    }


def test_admissions_of_large_heads_are_not_cached():
    admission = Admission(Authenticator(Access(HttpSettings()), ()), Role.READ)
    assert admission(scope(0, 10)) is admission(scope(0, 10)), "a usual one is remembered"
    tracemalloc.start()
    try:
        for number in range(3_000):
            assert admission(scope(number, 30_000)) is not None
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
