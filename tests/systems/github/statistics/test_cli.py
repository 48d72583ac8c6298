"""`tidegate stats` as a user runs it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.cli.test_commands import tidegate
from tests.systems.github.statistics import world as w
from tests.systems.github.statistics.world import Repository, World, iso
from tidegate.systems.github.statistics import GlobalStatistics, UserStatistics


@pytest.fixture
async def folder(small_world: World, tmp_path: Path) -> Path:
    """Where a database has the statistics of two users, up to this very day."""
    now = datetime.now(UTC)
    mine = Repository(
        id=1, owner="ann", name="a-repository-with-a-rather-long-name", stars=1234, language="Jupyter Notebook"
    )
    for n in range(40):
        who = ("ann", "dan", "eve", "bob", "cat")[n % 5]
        mine.bodies["commit", f"1:{n}"] = w.commit(who, iso(now - timedelta(days=n)))
        closed = iso(now - timedelta(days=n) + timedelta(hours=n))
        mine.bodies["pull_request", f"1:{n}"] = w.pull(who, iso(now - timedelta(days=n)), closed, merged=n % 4 > 0)
        mine.bodies["issue", f"1:{n}"] = w.issue(who, iso(now - timedelta(days=n)), closed if n % 2 else None)
        mine.bodies["review", f"1:{n}"] = w.review(who, iso(now - timedelta(days=n)))
    for login in ("ann", "bob"):
        await small_world.write_profile(login)
    await small_world.write_repository(mine)
    await small_world.finalize("ann", "bob")
    return tmp_path


async def stats(folder: Path, *arguments: str, **variables: str):
    url = f"sqlite:///{folder / 'tidegate.db'}"
    return await tidegate(folder, "stats", *arguments, TIDEGATE_DATABASE_URL=url, **{"COLUMNS": "80", **variables})


async def test_the_statistics_of_a_user_are_numbers_and_charts_in_eighty_columns(folder: Path):
    shown = await stats(folder, "@Ann")

    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in shown.out
    assert lines[0].startswith("ann  as of ")
    assert "In these repositories, by all accounts" in lines
    assert "By ann, in all collected repositories" in lines
    words = [line.split() for line in lines]
    assert ["commits", "40"] in words
    assert ["commits", "8"] in words
    assert ["stars", "1,234", "a-repository-with-a-rather-long-name", "1,234"] in words
    assert "merge rate 75%" in shown.out
    assert "Jupyter Notebook  ████" in shown.out
    assert "Mon " in shown.out
    assert "█" in lines[lines.index("Commits per week") + 1]


async def test_a_narrow_or_ascii_terminal_shows_the_same_data(folder: Path):
    narrow = await stats(folder, "ann", COLUMNS="60", PYTHONIOENCODING="ascii", NO_COLOR="1")

    assert narrow.code == 0
    assert narrow.out.isascii()
    assert "Jupyter Notebook  ####" in narrow.out


async def test_the_statistics_of_all_users_are_shown(folder: Path):
    shown = await stats(folder, "--all", "--days", "7")

    assert (shown.code, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert shown.out.startswith("2 users")
    assert "Most active users" in shown.out
    assert "ann/a-repository-with-a-rather-long-name" in shown.out


async def test_missing_statistics_are_reported_with_the_remedy(tmp_path: Path):
    shown = await tidegate(tmp_path, "stats", "octocat", "--recompute", "--json")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == "no statistics of octocat: run tidegate collect octocat\n"
    shown = await tidegate(tmp_path, "stats", "--all")
    assert (shown.code, shown.err) == (1, "there are no statistics yet: run tidegate collect LOGIN\n")


async def test_conflicting_options_are_refused(tmp_path: Path):
    refused = await tidegate(tmp_path, "stats", "ann", "--all")

    assert refused.code == 2
    assert "name a user, or pass --all for all users" in refused.err


async def test_statistics_can_be_recomputed_and_printed_as_json(folder: Path, small_world: World):
    """Also when somebody spoilt what was kept."""
    await small_world.harness.database.transaction(lambda tx: tx.execute(w.statistics_items.delete()))

    shown = await stats(folder, "ann", "--recompute", "--json")
    overall = await stats(folder, "--all", "--days", "3", "--json")

    found = msgspec.json.decode(shown.out, type=UserStatistics)
    assert (found.login, found.in_repositories.commits, found.by_user.commits) == ("ann", 40, 8)
    assert len(msgspec.json.decode(overall.out, type=GlobalStatistics).days) == 3
