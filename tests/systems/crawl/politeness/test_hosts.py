"""What hosts are called, and what is kept of them."""

import threading
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.systems.crawl.politeness.conftest import Open
from tests.systems.crawl.politeness.harness import PolitenessHarness
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.calls import NotCalled
from tidegate.engine.source import Verdict
from tidegate.engine.upstream import Answer, Permit, Request
from tidegate.systems.crawl import hosts
from tidegate.systems.crawl.host_registry import HostRegistry
from tidegate.systems.crawl.hosts import host_of
from tidegate.systems.crawl.politeness import PoliteCaller
from tidegate_simulators.marketplace import RobotsGroup, RobotsSettings


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Shop.Example/a?b=c", "shop.example"),
        ("https://shop.example:443/", "shop.example"),
        ("http://shop.example:443/", "shop.example:443"),
        ("http://127.0.0.1:9001", "127.0.0.1:9001"),
        ("http://[::1]:80/x", "[::1]"),
        ("http://[::1]:8080/x", "[::1]:8080"),
    ],
)
def test_a_host_has_one_name(url: str, host: str):
    assert host_of(url) == host


@pytest.mark.parametrize("url", ["", "shop.example", "ftp://shop.example/", "http://", "http://x:99999/", "http://[x/"])
def test_an_invalid_host_name_is_refused(url: str):
    with pytest.raises(InvalidArgument):
        host_of(url)


@pytest.mark.every_server
async def test_a_host_is_registered_once_and_its_record_is_kept(everywhere: PolitenessHarness):
    harness = everywhere
    with pytest.raises(NotFound):
        await harness.stored()
    first = await harness.book.hosts.register(harness.host)
    assert (first.robots_state, first.crawl_delay, first.rests_until) == ("unknown", timedelta(0), None)
    with pytest.raises(NotCalled):
        await harness.call()
    again = await harness.again().book.hosts.register(harness.host)
    assert (again.robots_state, again.read_at) == ("read", harness.clock.now())
    assert again.robots is not None
    assert "Disallow: /cart/" in again.robots
    assert [host.host for host in await harness.book.hosts.list()] == [harness.host]


async def test_a_host_name_that_cannot_be_stored_is_refused(harness: PolitenessHarness):
    for host in ("", "a|b", "x" * 256):
        with pytest.raises(InvalidArgument, match="host"):
            await harness.book.hosts.register(host)


async def test_an_identity_added_while_robots_txt_is_read_gets_its_pace(opened: Open):
    groups = (RobotsGroup(crawl_delay_s=1), RobotsGroup(agent="slow", crawl_delay_s=20))
    harness = await opened(RobotsSettings(groups=groups))
    told = [{"quick"}, {"quick", "slow"}]

    async def user_agents() -> Collection[str]:
        return told.pop(0) if len(told) > 1 else told[0]

    book = HostRegistry(harness.database, harness.gate, harness.crawl, user_agents=user_agents)
    await book.register(harness.host)
    harness.caller = PoliteCaller(harness.client, book)
    with pytest.raises(NotCalled):
        await harness.call()
    assert (await harness.stored()).crawl_delay_ms == 20_000
    assert (await harness.pace()).gap_ms == 20_000


@pytest.mark.parametrize("way", ["register", "restore"])
async def test_an_outdated_pace_does_not_overwrite_that_of_robots_txt(
    opened: Open, monkeypatch: pytest.MonkeyPatch, way: str
):
    harness = await opened(RobotsSettings(groups=(RobotsGroup(crawl_delay_s=20),)))
    await harness.book.hosts.register(harness.host)
    other = harness.again()
    tell, is_first = other.gate.pace, True

    async def tell_late(*args: Any, **how: Any) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            with pytest.raises(NotCalled, match="was read first"):
                await harness.call()
        await tell(*args, **how)

    monkeypatch.setattr(other.gate, "pace", tell_late)
    await (other.book.hosts.register(harness.host) if way == "register" else other.book.hosts.restore())
    assert (await harness.pace()).gap_ms == 20_000


async def test_after_recording_robots_txt_the_gate_is_updated_again(opened: Open, monkeypatch: pytest.MonkeyPatch):
    """Somebody may have told it between the two what SQL said until then."""
    harness = await opened(RobotsSettings(groups=(RobotsGroup(crawl_delay_s=20),)))
    await harness.book.hosts.register(harness.host)
    other, write, is_first = harness.again(), hosts.write, True

    def write_late(*args: Any) -> None:
        nonlocal is_first
        write(*args)
        if is_first:
            is_first = False
            stale.set()

    stale = threading.Event()
    monkeypatch.setattr(hosts, "write", write_late)
    tell = harness.gate.pace

    async def tell_between(*args: Any, **how: Any) -> None:
        await tell(*args, **how)
        if not stale.is_set():
            await other.book.hosts.restore()  # by what SQL says before we write it

    monkeypatch.setattr(harness.gate, "pace", tell_between)
    with pytest.raises(NotCalled, match="was read first"):
        await harness.call()
    assert (await harness.pace()).gap_ms == 20_000


class _Maintained:
    """A host that sends everybody elsewhere while it is being repaired."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        self.asked.append(urlsplit(request.url).path)
        status = (302, 503, 200)[min(len(self.asked), 3) - 1]
        headers = {"Location": "/repairs"} if status == 302 else {}
        return Answer(
            status=status,
            headers=CIMultiDictProxy(CIMultiDict(headers)),
            url=request.url,
            received_at=datetime(2026, 1, 1, tzinfo=UTC),
            body=b"User-agent: *\nDisallow: /\n",
            elapsed_ms=1.0,
        )


async def test_after_a_redirect_without_result_robots_txt_is_requested_at_its_own_path_again(
    harness: PolitenessHarness,
):
    upstream = _Maintained()
    harness.caller = PoliteCaller(upstream, harness.book.hosts)
    await harness.book.hosts.register(harness.host)
    for _ in range(4):
        with pytest.raises(NotCalled):
            await harness.call()
    assert upstream.asked == ["/robots.txt", "/repairs", "/robots.txt"]


class _Elsewhere:
    """A host that keeps its robots.txt at another one."""

    async def fetch(self, request: Request, permit: Permit | None = None) -> Answer:
        headers = CIMultiDictProxy(CIMultiDict({"Location": "http://www.shop.test/robots.txt"}))
        return Answer(
            status=301,
            headers=headers,
            url=request.url,
            received_at=datetime(2026, 1, 1, tzinfo=UTC),
            body=b"",
            elapsed_ms=1.0,
        )


async def test_a_robots_txt_on_another_host_is_not_fetched_and_allows_nothing(harness: PolitenessHarness):
    """That host's pace is not known here; whoever wants it crawls that one."""
    harness.caller = PoliteCaller(_Elsewhere(), harness.book.hosts)
    await harness.book.hosts.register(harness.host)
    with pytest.raises(NotCalled, match="was read first"):
        await harness.call()
    for process in (harness, harness.again()):
        process.caller = PoliteCaller(_Elsewhere(), process.book.hosts)
        with pytest.raises(NotCalled, match=r"forbids .* \(it is at http://www.shop.test/robots.txt\)") as raised:
            await process.call()
        assert raised.value.reading.verdict is Verdict.UNAVAILABLE
    assert harness.sim.report().calls == 0
