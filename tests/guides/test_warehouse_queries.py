"""The ready queries on DuckDB and PostgreSQL give what Python computes from the simulated GitHub itself."""

import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from statistics import mean, median
from typing import Any

import asyncpg
import duckdb
import pytest

from tests.cli.batch import tidegate_each
from tests.cli.test_collect import simulator, token_of
from tests.docs.pages import ROOT
from tests.servers.sql import empty_database
from tidegate_simulators.github import Sizes, WorldShape

pytestmark = pytest.mark.full

QUERIES = ROOT / "examples" / "queries"
NOTEBOOK = ROOT / "examples" / "notebooks" / "warehouse.ipynb"
SIZES = Sizes(issues=30, pulls=20, commits=40, issue_comments=5, review_comments=5, reviews=25)
Answer = list[tuple[Any, ...]]
Items = Sequence[Mapping[str, Any]]


@pytest.fixture
async def warehouse(tmp_path: Path) -> AsyncGenerator[tuple[str, dict[str, Answer]]]:
    """A collected and copied GitHub, in both databases: the address of the PostgreSQL one, and the answers."""
    shape = WorldShape(users=3, repositories=2, sizes=SIZES, quirks=False)
    async with simulator(shape) as sim, empty_database("postgres", tmp_path) as url:
        logins = sim.world.logins()
        ended = await tidegate_each(
            tmp_path,
            f"collect {' '.join(logins)} --kinds all",
            "sync --to duckdb:warehouse.duckdb",
            f"sync --to {url}",
            TIDEGATE_GITHUB__API_URL=sim.url,
            GITHUB_TOKEN=token_of(sim),
        )
        assert [each.code for each in ended] == [0, 0, 0], ended
        repositories = {
            each.repository["full_name"]: each for login in logins for each in sim.truth(login).repositories
        }
        pulls = {name: each.pulls for name, each in repositories.items()}
        issues = {
            name: [one for one in each.issues if not one.get("pull_request")] for name, each in repositories.items()
        }
        commits = {name: each.commits for name, each in repositories.items()}
        with duckdb.connect(tmp_path / "warehouse.duckdb", read_only=True) as file:
            [(now,)] = file.sql("SELECT max(_collected_at) FROM github.issue").fetchall()
            reviews = file.sql("SELECT resource_key, pull_request_number, github_id FROM github.review").fetchall()
        pull_of = {github_id: (name, number) for name, number, github_id in reviews}
        assert len(pull_of) == sum(len(each.reviews) for each in repositories.values()) > 0
        yield (
            url,
            {
                "lead_time": lead_time(pulls),
                "review_latency": review_latency(
                    pulls, {name: each.reviews for name, each in repositories.items()}, pull_of
                ),
                "bus_factor": bus_factor(commits),
                "contributor_retention": retention(commits),
                "open_issue_age": open_age(issues, now.replace(tzinfo=UTC)),
                "throughput": throughput(issues),
            },
        )


async def test_both_databases_return_the_results_of_python(
    warehouse: tuple[str, dict[str, Answer]], tmp_path: Path
) -> None:
    url, expected = warehouse
    assert {file.stem for file in QUERIES.glob("*.sql")} == expected.keys()
    connection = await asyncpg.connect(url)
    with duckdb.connect(tmp_path / "warehouse.duckdb", read_only=True) as file:
        for name, answer in expected.items():
            query = (QUERIES / f"{name}.sql").read_text()
            assert answer, name
            assert_same(file.sql(query).fetchall(), answer)
            assert_same(await connection.fetch(query), answer)
    await connection.close()


async def test_the_cells_of_the_notebook_run(
    warehouse: tuple[str, dict[str, Answer]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    _, expected = warehouse
    assert {name: len(rows) for name, rows in names["results"].items()} == {k: len(v) for k, v in expected.items()}


def assert_same(found: Sequence[Sequence[Any]], answer: Answer) -> None:
    """Queries round to one or two digits."""
    rows, expected = ([list(map(_plain, row)) for row in each] for each in (found, answer))
    assert rows == [
        [pytest.approx(each, abs=0.051) if isinstance(each, float) else each for each in row] for row in expected
    ]


def _plain(value: Any) -> Any:
    """Numbers of one type, and times without a zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return float(value) if isinstance(value, int | float | Decimal) else value


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def month(text: str) -> datetime:
    return at(text).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def hours(first: str, last: str) -> float:
    return (at(last) - at(first)).total_seconds() / 3600


def lead_time(pulls: Mapping[str, Items]) -> Answer:
    groups: defaultdict[tuple[str, datetime], list[float]] = defaultdict(list)
    for name, items in pulls.items():
        for item in items:
            if item["merged_at"]:
                groups[name, month(item["merged_at"])].append(hours(item["created_at"], item["merged_at"]))
    return [(*key, len(each), median(each)) for key, each in sorted(groups.items())]


def review_latency(pulls: Mapping[str, Items], reviews: Mapping[str, Items], pull_of: Mapping[int, Any]) -> Answer:
    found: Answer = []
    for name, items in sorted(pulls.items()):
        latencies: list[float] = []
        for item in items:
            account = item["user"] and item["user"]["id"]
            times = [
                each["submitted_at"]
                for each in reviews[name]
                if pull_of[each["id"]] == (name, item["number"])
                and each["submitted_at"]
                and at(each["submitted_at"]) >= at(item["created_at"])
                and (each["user"] and each["user"]["id"]) != account
            ]
            if times:
                latencies.append(hours(item["created_at"], min(times)))
        if latencies:
            found.append((name, len(latencies), mean(latencies)))
    return found


def bus_factor(commits: Mapping[str, Items]) -> Answer:
    found: Answer = []
    for name, items in sorted(commits.items()):
        counts = Counter(author(item) for item in items)
        total, so_far = sum(counts.values()), 0
        for place, (_, count) in enumerate(counts.most_common(), 1):
            so_far += count
            if so_far * 2 >= total:
                found.append((name, place, total))
                break
    return found


def author(item: Mapping[str, Any]) -> str:
    return (item["author"] or {}).get("login") or item["commit"]["author"]["email"]


def retention(commits: Mapping[str, Items]) -> Answer:
    months: defaultdict[str, set[datetime]] = defaultdict(set)
    for items in commits.values():
        for item in items:
            if item["author"] and item["author"].get("login"):
                months[item["author"]["login"]].add(month(item["commit"]["author"]["date"]))
    cohorts: defaultdict[datetime, list[bool]] = defaultdict(list)
    for each in months.values():
        cohorts[min(each)].append(len(each) > 1)
    return [(first, len(each), sum(each)) for first, each in sorted(cohorts.items())]


def open_age(issues: Mapping[str, Items], now: datetime) -> Answer:
    found: Answer = []
    for name, items in sorted(issues.items()):
        ages = [(now - at(item["created_at"])).total_seconds() / 86400 for item in items if item["state"] == "open"]
        if ages:
            found.append((name, len(ages), mean(ages)))
    return found


def throughput(issues: Mapping[str, Items]) -> Answer:
    opened, closed = Counter[datetime](), Counter[datetime]()
    for items in issues.values():
        opened.update(month(item["created_at"]) for item in items)
        closed.update(month(item["closed_at"]) for item in items if item["closed_at"])
    return [(each, opened[each], closed[each]) for each in sorted({*opened, *closed})]
