"""What robots.txt says, and what that means."""

from urllib.robotparser import RobotFileParser

import pytest

from tidegate_simulators.marketplace import RobotsGroup, RobotsSettings
from tidegate_simulators.marketplace.robots import Robots

GROUPS = (
    RobotsGroup(
        agent="*",
        disallow=("/cart/", "/*?*sort=", "/exact$", "/cart/help/secret"),
        allow=("/cart/help",),
        crawl_delay_s=1.5,
    ),
    RobotsGroup(agent="tidegate", disallow=("/",), allow=("/search",), crawl_delay_s=None),
)
ROBOTS = Robots(RobotsSettings(groups=GROUPS))


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/cart", True),
        ("/cart/", False),
        ("/cart/add?product=1", False),
        ("/cart/help", True),
        ("/cart/helper", True),
        ("/cart/help/secret", False),
        ("/search?q=a", True),
        ("/search?q=a&sort=price", False),
        ("/search?sort=price", False),
        ("/exact", False),
        ("/exactly", True),
        ("/robots.txt", True),
    ],
)
def test_the_longest_pattern_decides(path: str, allowed: bool):
    assert ROBOTS.allows(b"Mozilla/5.0", path.encode()) is allowed


def test_of_two_patterns_of_equal_length_allow_wins():
    robots = Robots(RobotsSettings(groups=(RobotsGroup(disallow=("/same",), allow=("/same",)),)))
    assert robots.allows(b"any", b"/same")


def test_a_named_agent_has_its_own_rules():
    named = b"Mozilla/5.0 (compatible; TideGate/1.0)"
    assert [ROBOTS.allows(named, path) for path in (b"/", b"/search?q=a&sort=b", b"/cart/help")] == [False, True, False]
    assert (ROBOTS.delay_us(named), ROBOTS.delay_us(b"other")) == (0, 1_500_000)


def test_written_rules_are_read_alike_by_another_parser():
    other = RobotFileParser()
    other.parse(ROBOTS.text.decode().splitlines())
    for agent in ("Tidegate/1.0", "other"):
        for path in ("/cart/add", "/", "/search"):
            assert other.can_fetch(agent, path) == ROBOTS.allows(agent.encode(), path.encode()), (agent, path)
    assert b"Crawl-delay: 1.5\n" in ROBOTS.text


def test_a_missing_robots_txt_allows_everything_and_a_failing_one_nothing():
    assert Robots(RobotsSettings(status=404)).allows(b"any", b"/cart/")
    assert not Robots(RobotsSettings(status=500)).allows(b"any", b"/search")
    assert Robots(RobotsSettings(status=500)).allows(b"any", b"/robots.txt")
    assert Robots(RobotsSettings(groups=())).allows(b"any", b"/cart/")
