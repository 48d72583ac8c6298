"""What a robots.txt says: read by us, and by somebody who knows the rules as well."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from tidegate.engine.upstream import Answer
from tidegate.systems.crawl.robots import LARGEST, RobotsAnswer, Rules, meaning_of, moved_to, text_of
from tidegate_simulators.marketplace import RobotsGroup, RobotsSettings
from tidegate_simulators.marketplace.robots import Robots

AGENT = "tidegate/1.0 (crawler)"


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(
        status=status,
        headers=CIMultiDictProxy(CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})),
        url="http://shop.test/robots.txt",
        received_at=datetime(2026, 1, 1, tzinfo=UTC),
        body=body,
        elapsed_ms=1.0,
    )


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (200, RobotsAnswer.TEXT),
        (204, RobotsAnswer.UNREADABLE),
        (400, RobotsAnswer.NONE),
        (404, RobotsAnswer.NONE),
        (410, RobotsAnswer.NONE),
        (429, RobotsAnswer.REFUSED),
        (401, RobotsAnswer.REFUSED),
        (403, RobotsAnswer.REFUSED),
        (500, RobotsAnswer.UNREADABLE),
        (503, RobotsAnswer.UNREADABLE),
    ],
)
def test_a_status_has_the_meaning_of_the_rfc_unless_it_is_about_the_caller(status: int, meaning: RobotsAnswer):
    assert meaning_of(answer(status), refusals=0, redirects=0) is meaning


def test_a_robots_txt_forbidden_for_all_is_missing_but_a_ban_is_a_ban():
    assert meaning_of(answer(403), refusals=1, redirects=0) is RobotsAnswer.REFUSED
    assert meaning_of(answer(403), refusals=2, redirects=0) is RobotsAnswer.NONE
    assert meaning_of(answer(403, Retry_After="600"), refusals=9, redirects=0) is RobotsAnswer.REFUSED
    assert meaning_of(answer(429), refusals=9, redirects=0) is RobotsAnswer.REFUSED


@pytest.mark.parametrize(
    ("location", "meaning"),
    [
        ("/files/robots.txt", RobotsAnswer.MOVED),
        ("https://SHOP.test/robots.txt", RobotsAnswer.MOVED),
        ("http://www.shop.test/robots.txt", RobotsAnswer.ELSEWHERE),
        ("ftp://shop.test/robots.txt", RobotsAnswer.NONE),
        ("http://[shop/robots.txt", RobotsAnswer.NONE),
        ("/a file", RobotsAnswer.NONE),
    ],
)
def test_a_redirect_is_followed_on_the_same_host_only(location: str, meaning: RobotsAnswer):
    assert meaning_of(answer(301, Location=location), refusals=0, redirects=0) is meaning


def test_a_redirect_from_https_to_http_is_not_followed():
    """The call carries the headers of an identity."""
    secret = msgspec.structs.replace(
        answer(301, Location="http://shop.test/robots.txt"), url="https://shop.test/robots.txt"
    )
    assert meaning_of(secret, refusals=0, redirects=0) is RobotsAnswer.ELSEWHERE


def test_five_redirects_are_followed_and_a_sixth_counts_as_missing():
    sent = answer(302, Location="robots.txt?again")
    assert meaning_of(sent, refusals=0, redirects=4) is RobotsAnswer.MOVED
    assert meaning_of(sent, refusals=0, redirects=5) is RobotsAnswer.NONE
    assert moved_to(sent) == "http://shop.test/robots.txt?again"
    assert meaning_of(answer(302), refusals=0, redirects=0) is RobotsAnswer.NONE


def test_of_a_large_file_whole_lines_are_read_up_to_the_limit():
    line = b"Disallow: /forbidden-%05d\n"
    body = b"User-agent: *\n" + b"".join(line % n for n in range(40_000))
    text = text_of(answer(200, body))
    assert LARGEST - 100 < len(text) < LARGEST
    assert text.splitlines()[-1].startswith("Disallow: /forbidden-")
    rules = Rules(text)
    assert not rules.allows("http://shop.test/forbidden-00007", AGENT)
    assert rules.allows("http://shop.test/forbidden-39999", AGENT)


def test_invalid_text_is_read_as_far_as_possible():
    assert text_of(answer(200, b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /\xff")) == "User-agent: *\r\nDisallow: /�"
    assert Rules("<!doctype html><h1>Not found</h1>").allows("http://shop.test/anything", AGENT)


def test_the_crawl_delay_is_the_longest_of_all_used_agents_and_at_most_a_day():
    rules = Rules("User-agent: slow\nCrawl-delay: 7.5\n\nUser-agent: *\nCrawl-delay: 2\n")
    assert rules.crawl_delay([AGENT]) == timedelta(seconds=2)
    assert rules.crawl_delay([AGENT, "slow/1"]) == timedelta(seconds=7.5)
    assert rules.crawl_delay([]) == timedelta(0)
    assert Rules("User-agent: *\nCrawl-delay: soon").crawl_delay([AGENT]) == timedelta(0)
    assert Rules("User-agent: *\nCrawl-delay: 1e300").crawl_delay([AGENT]) == timedelta(days=1)
    assert Rules("").crawl_delay([AGENT]) == timedelta(0)


_parts = st.sampled_from(["/", "/a", "/ab", "/a/b", "/a*b", "/*b$", "/b?x=", "/a/*/c", "/c$"])
_groups = st.builds(
    RobotsGroup,
    agent=st.sampled_from(["*", "tidegate", "slow"]),
    allow=st.lists(_parts, max_size=3).map(tuple),
    disallow=st.lists(_parts, max_size=3).map(tuple),
    crawl_delay_s=st.none() | st.integers(0, 9),
)


@example([RobotsGroup(agent="tidegate", allow=(), disallow=()), RobotsGroup(disallow=("/",))], [], AGENT)
@given(
    st.lists(_groups, max_size=3, unique_by=lambda group: group.agent),
    st.lists(st.sampled_from(["a", "b", "c", "/", "?x=", "ab"]), max_size=6),
    st.sampled_from([AGENT, "slow/2", "Mozilla/5.0 (X11) Harbour/120.0"]),
)
def test_simulator_and_crawler_read_the_same_rules(groups: list[RobotsGroup], pieces: list[str], agent: str):
    host = Robots(RobotsSettings(groups=tuple(groups)))
    path = "/" + "".join(pieces).lstrip("/")
    rules = Rules(host.text.decode())
    assert rules.allows(f"http://shop.test{path}", agent) == host.allows(agent.encode(), path.encode())
    assert rules.crawl_delay([agent]) == timedelta(microseconds=host.delay_us(agent.encode()))
