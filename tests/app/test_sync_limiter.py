"""The limiter for programs without an event loop."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

import tidegate
from tests.servers.ports import free_ports

RULES = tidegate.LimiterSettings(
    limits=(tidegate.Limit(name="hour", permits=200, window=timedelta(hours=1)),),
    rates=(),
    quiet_start=timedelta(0),
    use_by=timedelta(seconds=10),
)


def test_threads_share_the_limits_and_keys_are_limited_separately(tmp_path: Path):
    calls: list[str] = []
    settings = tidegate.Settings(data_dir=tmp_path)
    with (
        tidegate.SyncLimiter("weather", RULES, settings) as limiter,
        ThreadPoolExecutor(8) as threads,
    ):
        for user in ("ada", "bob"):
            for call in [threads.submit(limiter.run, lambda: calls.append("."), user) for _ in range(8)]:
                call.result(timeout=60)

        assert limiter.status("ada").usage[0].used >= 8, "a permit that ended unused counts as spent"
        assert limiter.status("bob").usage[0].used >= 8
        assert limiter.status().usage[0].used == 0
    assert len(calls) == 16


def test_an_unavailable_server_is_reported_when_the_limiter_is_opened(tmp_path: Path):
    (port,) = free_ports(1)
    settings = tidegate.Settings(data_dir=tmp_path, valkey_url=f"redis://127.0.0.1:{port}")

    with (
        pytest.raises(tidegate.ValkeyUnavailable, match=str(port)),
        tidegate.SyncLimiter("weather", RULES, settings),
    ):
        pass
