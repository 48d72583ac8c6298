"""A small GitHub as a collector leaves it behind: documents of a few users, which change in every way they can."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from sqlalchemy import delete

from tests.storage.documents.harness import StoreHarness, StoreName, open_harness
from tests.systems.github.statistics.oracle import Oracle, all_documents
from tidegate.engine.lifecycle import RunState
from tidegate.engine.runs import Run
from tidegate.storage.documents import Document, Listing
from tidegate.storage.documents.statements import documents as document_table
from tidegate.storage.sql import Transaction
from tidegate.systems.github.statistics import Statistics, UserStatistics
from tidegate.systems.github.statistics.tables import statistics_items, statistics_users

TODAY = datetime(2026, 1, 3, 12, tzinfo=UTC)
"""In the first ISO week of its year, which began in the year before."""
ACCOUNTS = {"ann": 101, "bob": 102, "cat": 103, "dan": 204, "eve": 205}
USERS = ("ann", "bob", "cat")
ROBOT = {"login": "tide[bot]", "id": 900, "type": "Bot"}
GHOST = {"login": "ghost", "id": 10137, "type": "User"}


def account(login: str | None) -> dict[str, Any] | None:
    """A person, a bot, the ghost, or nobody whom GitHub knows."""
    match login:
        case None:
            return None
        case "bot":
            return ROBOT
        case "ghost":
            return GHOST
        case _:
            return {"login": login, "id": ACCOUNTS[login], "type": "User"}


def iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def days_ago(days: float) -> str:
    return iso(TODAY - timedelta(days=days))


@dataclass
class Repository:
    """A repository and what is in it, by kind and id."""

    id: int
    owner: str
    name: str
    fork: bool = False
    stars: int = 0
    language: str | None = None
    archived: bool = False
    bodies: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])

    @property
    def resource(self) -> str:
        return f"repo:{self.owner}/{self.name}"

    def body(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "full_name": f"{self.owner}/{self.name}",
            "owner": account(self.owner),
            "fork": self.fork,
            "stargazers_count": self.stars,
            "forks_count": self.stars // 3,
            "language": self.language,
            "archived": self.archived,
        }


class World:
    """Writes documents as runs do, computes statistics, and compares them with the slow computation."""

    def __init__(self, harness: StoreHarness) -> None:
        self.harness, self.statistics = harness, Statistics(harness.database, harness.store)
        harness.clock.advance(TODAY - harness.clock.now())
        self._begin()

    async def empty(self) -> None:
        """Remove everything."""
        await self.harness.database.transaction(_empty)
        if self.harness.mongo_url is not None:
            async with AsyncMongoClient[Any](self.harness.mongo_url) as client:
                await client.get_default_database().get_collection("documents").delete_many({})
        self._begin()

    def _begin(self) -> None:
        self.sweep = self.writes = 0
        self.skew = timedelta()
        """How far the clock of the next writer is off."""
        self.counted: set[str] = set()
        """Users that have statistics."""

    async def write(self, *given: Document, completed: tuple[Listing, ...] = ()) -> None:
        """In a transaction of its own, at a moment of its own by its writer's clock."""
        self.writes += 1
        now = self.harness.clock.now()
        self.harness.clock.advance(TODAY + self.skew + timedelta(milliseconds=self.writes) - now)
        await self.harness.write(*given, completed=completed)
        self.harness.clock.advance(now - self.harness.clock.now())

    def next_sweep(self) -> int:
        self.sweep += 1
        return self.sweep

    async def write_profile(self, login: str) -> None:
        body = {"id": ACCOUNTS[login], "login": login, "type": "User"}
        await self.write(self.document("user", str(ACCOUNTS[login]), login, f"user:{login}", body))

    async def write_repository(self, found: Repository, *, items: bool = True) -> None:
        """The repository, and all that is in it."""
        self.next_sweep()
        listing = f"user:{found.owner}/repos"
        bodies = found.bodies.items() if items else ()
        await self.write(
            self.document("repository", str(found.id), found.owner, listing, found.body()),
            *(self.document(kind, number, found.owner, found.resource, body) for (kind, number), body in bodies),
        )

    async def list_repositories(self, owner: str, *there: Repository) -> None:
        """Those that are in the owner's list; all others left it, without what is in them being called gone."""
        sweep, listing = self.next_sweep(), f"user:{owner}/repos"
        written = [self.document("repository", str(each.id), owner, listing, each.body()) for each in there]
        await self.write(*written, completed=(Listing("repository", listing, sweep),))

    async def relist(self, found: Repository, kind: str) -> None:
        """Read a list of the repository from its beginning to its end: what it lacks is gone."""
        sweep = self.next_sweep()
        kept = [(number, body) for (each, number), body in found.bodies.items() if each == kind]
        written = [self.document(kind, number, found.owner, found.resource, body) for number, body in kept]
        await self.write(*written, completed=(Listing(kind, found.resource, sweep),))

    async def write_event(self, login: str, number: str, at: str) -> None:
        body = {"id": number, "actor": account(login), "created_at": at}
        await self.write(self.document("event", number, login, f"user:{login}", body))

    def document(self, kind: str, number: str, owner: str, resource: str, body: dict[str, Any]) -> Document:
        return Document.of(kind, number, owner=owner, resource=resource, body=body, sweep=self.sweep)

    async def finalize(self, *logins: str) -> None:
        for login in logins:
            await self.statistics.finalize(run_of(login, self.next_sweep()))
            self.counted.add(login)

    async def oracle(self) -> Oracle:
        return Oracle(await all_documents(self.harness.store), self.harness.clock.now().date())

    async def of(self, login: str) -> UserStatistics:
        found = await self.statistics.of_user(login)
        assert found is not None
        return found

    async def assert_owned(self, *logins: str) -> None:
        """What is in the repositories of these users is right."""
        oracle = await self.oracle()
        for login in logins:
            found = await self.of(login)
            assert found.repositories == oracle.repositories(login)
            assert found.in_repositories == oracle.in_repositories(login, ACCOUNTS[login])

    async def assert_right(self, days: int = 40) -> None:
        """Everything is right; every user whose documents changed was computed since."""
        oracle = await self.oracle()
        await self.assert_owned(*self.counted)
        for login in self.counted:
            assert (await self.of(login)).by_user == oracle.by_user(ACCOUNTS[login])
        overall = await self.statistics.overall(days=days)
        assert overall.totals == oracle.totals(self.counted)
        assert overall.days == oracle.days(days)
        assert overall.by_day == oracle.periods(days, date.isoformat)
        assert overall.by_week == oracle.periods(days, lambda day: day.strftime("%G-W%V"))
        assert overall.by_month == oracle.periods(days, lambda day: day.strftime("%Y-%m"))


def run_of(login: str, number: int = 1) -> Run:
    """A run that has no job left."""
    nothing: dict[str, Any] = dict.fromkeys(Run.__struct_fields__, 0)
    known: dict[str, Any] = {
        "id": number,
        "source": "github",
        "user_id": login,
        "login": login,
        "status": RunState.FINALIZING,
    }
    return Run(**(nothing | known))


def _empty(tx: Transaction) -> None:
    for table in (document_table, statistics_items, statistics_users):
        tx.execute(delete(table))


@asynccontextmanager
async def open_world(name: StoreName, folder: Path) -> AsyncGenerator[World]:
    """On that store, empty, today."""
    async with open_harness(name, folder) as harness:
        world = World(harness)
        await world.empty()
        yield world


def commit(author: str | None, at: str, name: str = "") -> dict[str, Any]:
    signature = {"name": name or author, "email": "x@example.org", "date": at}
    return {"commit": {"author": signature, "committer": {**signature, "date": iso(TODAY)}}, "author": account(author)}


def issue(author: str | None, at: str, closed_at: str | None = None) -> dict[str, Any]:
    state = "closed" if closed_at else "open"
    return {"user": account(author), "state": state, "created_at": at, "closed_at": closed_at}


def pull(author: str | None, at: str, closed_at: str | None = None, *, merged: bool = False) -> dict[str, Any]:
    return {**issue(author, at, closed_at), "merged_at": closed_at if merged else None}


def comment(author: str | None, at: str) -> dict[str, Any]:
    return {"user": account(author), "created_at": at}


def review(author: str | None, at: str) -> dict[str, Any]:
    return {"user": account(author), "submitted_at": at, "state": "APPROVED"}
