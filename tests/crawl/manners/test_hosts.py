"""What hosts are called, and what is kept of them."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.crawl.manners.conftest import Open
from tests.crawl.manners.visit import Visit
from tidegate.collect.calls import NotCalled
from tidegate.collect.source import Verdict
from tidegate.crawl.host_book import HostBook
from tidegate.crawl.hosts import host_of
from tidegate.crawl.politeness import PoliteCaller
from tidegate.kernel.errors import InvalidArgument, NotFound
from tidegate.simulators.marketplace import RobotsGroup, RobotsSettings
from tidegate.upstream import Answer, Request


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
def test_what_names_no_host_is_refused(url: str):
    with pytest.raises(InvalidArgument):
        host_of(url)


async def test_a_host_is_met_once_and_what_is_known_of_it_stays(everywhere: Visit):
    visit = everywhere
    with pytest.raises(NotFound):
        await visit.stored()
    first = await visit.book.hosts.meet(visit.host)
    assert (first.robots_state, first.crawl_delay, first.rests_until) == ("unknown", timedelta(0), None)
    with pytest.raises(NotCalled):
        await visit.call()
    again = await visit.again().book.hosts.meet(visit.host)
    assert (again.robots_state, again.read_at) == ("read", visit.clock.now())
    assert again.robots is not None
    assert "Disallow: /cart/" in again.robots
    assert [host.host for host in await visit.book.hosts.list()] == [visit.host]


async def test_a_name_that_cannot_be_kept_is_refused(visit: Visit):
    for host in ("", "a|b", "x" * 256):
        with pytest.raises(InvalidArgument, match="host"):
            await visit.book.hosts.meet(host)


async def test_who_joins_while_robots_txt_is_being_read_is_not_overlooked(opened: Open):
    groups = (RobotsGroup(crawl_delay_s=1), RobotsGroup(agent="slow", crawl_delay_s=20))
    visit = await opened(RobotsSettings(groups=groups))
    told = [{"quick"}, {"quick", "slow"}]

    async def user_agents() -> Collection[str]:
        return told.pop(0) if len(told) > 1 else told[0]

    book = HostBook(visit.database, visit.gate, visit.crawl, user_agents=user_agents)
    await book.meet(visit.host)
    visit.caller = PoliteCaller(visit.client, book)
    with pytest.raises(NotCalled):
        await visit.call()
    assert (await visit.stored()).crawl_delay_ms == 20_000
    assert (await visit.pace()).gap_ms == 20_000


class _Elsewhere:
    """A host that keeps its robots.txt at another one."""

    async def fetch(self, request: Request) -> Answer:
        headers = CIMultiDictProxy(CIMultiDict({"Location": "http://www.shop.test/robots.txt"}))
        return Answer(
            status=301,
            headers=headers,
            url=request.url,
            received_at=datetime(2026, 1, 1, tzinfo=UTC),
            body=b"",
            redirects=(),
            elapsed_ms=1.0,
        )


async def test_a_robots_txt_at_another_host_is_not_fetched_and_allows_nothing(visit: Visit):
    """That host's pace is not known here; whoever wants it crawls that one."""
    visit.caller = PoliteCaller(_Elsewhere(), visit.book.hosts)
    await visit.book.hosts.meet(visit.host)
    with pytest.raises(NotCalled, match="was read first"):
        await visit.call()
    for process in (visit, visit.again()):
        process.caller = PoliteCaller(_Elsewhere(), process.book.hosts)
        with pytest.raises(NotCalled, match=r"forbids .* \(it is at http://www.shop.test/robots.txt\)") as raised:
            await process.call()
        assert raised.value.reading.verdict is Verdict.UNAVAILABLE
    assert visit.sim.report().calls == 0
