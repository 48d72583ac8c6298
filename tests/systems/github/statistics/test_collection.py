"""Whole collections from a simulated GitHub: the statistics are its truth, run after run."""

from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.deployment import SMALL, Deployment, deployed
from tests.systems.github.statistics.truth import PROMPT, assert_true
from tidegate.systems.github import CONVERSATIONS
from tidegate_simulators.github import Sizes

MEDIUM = Sizes(issues=60, pulls=50, commits=120, issue_comments=40, review_comments=20, reviews=30)


async def collect_and_compare(it: Deployment, *logins: str) -> None:
    await it.collect(*logins, full=True)
    await assert_true(it.statistics, it.sim, it.sim.world.logins())


@pytest.mark.full
async def test_statistics_equal_those_of_the_simulator(tmp_path: Path, embedded_url: str):
    shape: Any = {"users": 4, "repositories": 3, "sizes": MEDIUM, "events": 60}
    async with deployed(tmp_path, embedded_url, **shape, include=CONVERSATIONS, behaviour=PROMPT) as it:
        await collect_and_compare(it, *it.sim.world.logins())


@pytest.mark.full
async def test_statistics_follow_a_changing_world(tmp_path: Path, embedded_url: str):
    shape: Any = {"users": 2, "repositories": 3, "sizes": SMALL}
    async with deployed(tmp_path, embedded_url, **shape, include=CONVERSATIONS, behaviour=PROMPT) as it:
        one, two = it.sim.world.logins()
        await collect_and_compare(it, one, two)
        first, second, third = (each.repository["full_name"] for each in it.sim.truth(one).repositories)
        change = it.sim.mutate

        change.push(first, 3)
        change.merge(first, change.open_pull(first))
        change.close(first, change.open_issue(first))
        change.delete_issue(first, 2)
        change.star(second, 40)
        await collect_and_compare(it, one)

        change.rename(first, "elsewhere")
        change.make_private(third)
        await collect_and_compare(it, one)

        change.transfer(second, two)
        change.disable_issues(f"{one}/elsewhere")
        await collect_and_compare(it, two, one)  # the former owner's run is the later one, and they overlap

        change.make_public(third)
        change.transfer(f"{two}/{second.partition('/')[2]}", one)
        await collect_and_compare(it, one, two)
