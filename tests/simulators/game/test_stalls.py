"""A simulator that could not read for a while does not blame the client for it, and says so."""

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.waiting import blocked_process, until
from tidegate_simulators.game import GameConfig, GameSimulator, LimitSettings, WorldShape

PER_SECOND = 20
CONFIG = GameConfig(
    world=WorldShape(missing=0, body_bytes=12_000, kept_bytes=8_000),
    limits=LimitSettings(per_second=PER_SECOND, strikes_until_ban=None),
)


class Client(threading.Thread):
    """Sends requests on connections of their own, never faster than `interval_s`, and reads no answer."""

    def __init__(self, sim: GameSimulator, requests: int, interval_s: float) -> None:
        super().__init__(daemon=True)
        host, port = sim.url.removeprefix("http://").split(":")
        self._sockets = [socket.create_connection((host, int(port))) for _ in range(requests)]
        self._request = f"GET /v1/characters/1 HTTP/1.1\r\nHost: game\r\nX-Api-Key: {sim.api_key}\r\n\r\n".encode()
        self._interval_s = interval_s
        self._sent = threading.Semaphore(0)

    def run(self) -> None:
        for one in self._sockets:
            one.sendall(self._request)
            self._sent.release()
            blocked_process(self._interval_s)  # this thread only

    def wait_for(self, requests: int) -> None:
        """Block the calling thread until so many more requests were sent."""
        for _ in range(requests):
            assert self._sent.acquire(timeout=60)

    def close(self) -> None:
        self.join()
        for one in self._sockets:
            one.close()


@contextmanager
def client_of(sim: GameSimulator, requests: int, interval_s: float) -> Generator[Client]:
    client = Client(sim, requests, interval_s)
    try:
        yield client
    finally:
        client.close()


async def all_connected(sim: GameSimulator, connections: int) -> None:
    await until(lambda: sim.report().connections >= connections)


async def test_a_client_at_the_limit_during_a_stall_is_uncertain_and_no_breach():
    async with GameSimulator(CONFIG) as sim:
        with client_of(sim, 3 * PER_SECOND, 1 / PER_SECOND) as client:
            await all_connected(sim, 3 * PER_SECOND)
            client.start()
            client.wait_for(PER_SECOND + 1)  # blocks the event loop for a second
            await until(lambda: sim.report().calls == 3 * PER_SECOND)
        report = sim.report()

    assert (report.broken, report.refused, report.by_outcome) == (0, 0, {"200": 3 * PER_SECOND})
    assert report.most_in_a_second <= PER_SECOND
    assert report.uncertain >= 1
    window = report.keys[0].uncertain_windows[0]
    assert window.read > window.limit >= window.certain
    assert window.stall_ms >= 1_000
    assert report.stalls.longest_ms >= 1_000


@pytest.mark.parametrize("is_stalled_meanwhile", [False, True])
async def test_a_client_over_the_limit_is_a_breach_whether_the_simulator_stalls_or_not(is_stalled_meanwhile: bool):
    """So many at once that no stall of less than ten seconds could explain them."""
    sent = 10 * PER_SECOND
    async with GameSimulator(CONFIG) as sim:
        blocked_process(0.2)  # a stall elsewhere
        with client_of(sim, sent, 0) as client:
            await all_connected(sim, sent)
            client.start()
            client.wait_for(sent if is_stalled_meanwhile else 0)
            await until(lambda: sim.report().calls == sent)
        await asyncio.sleep(0)
        report = sim.report()

    assert report.broken >= sent // 2
    assert report.most_in_a_second > PER_SECOND
    assert report.stalls.count >= 1
