"""The entry point of statistics: a finalizer that updates them, and their readers."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import select

from tidegate.core.arguments import require_name, require_whole
from tidegate.core.backoff import Backoff
from tidegate.core.errors import NotFound
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.runs import Run
from tidegate.engine.tables import page_jobs
from tidegate.storage.documents import DocumentStore
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.github.source import GithubSource
from tidegate.systems.github.statistics import global_statistics, item_store, summary
from tidegate.systems.github.statistics.item_store import ComputationReplaced, Recount
from tidegate.systems.github.statistics.results import ByUser, GlobalStatistics, UserStatistics
from tidegate.systems.github.statistics.summary import StoredSummary, activity_of_user
from tidegate.systems.github.statistics.tables import statistics_users
from tidegate.systems.github.subjects import SubjectKind, parse_subject

log = get_logger(__name__)

_user = statistics_users.c
_MOST_TRIES = 8
_PAUSES = Backoff(first=timedelta(milliseconds=100), most=timedelta(seconds=5))
LONGEST_SPAN = 366


class Statistics:
    """Statistics of single users and of all users.

    The stored results depend on the documents only: when a computation ends, they are the same as after a full
    recomputation, whatever was computed before, how often and concurrently.
    """

    def __init__(self, database: Database, documents: DocumentStore) -> None:
        self._database, self._documents = database, documents

    async def finalize(self, run: Run) -> None:
        """Update the statistics of a run's accounts; ignores runs of other sources.

        A user or an organization has its own statistics. A repository or a search covers only a part of its accounts'
        repositories, so only accounts that have statistics already are updated.

        As a finalizer it can be repeated for the same run, and run concurrently for several runs.
        """
        if run.source != GithubSource.name:
            return
        for user_id, login in await self._database.read(_accounts_of, run):
            await self._compute(user_id, login, run_id=run.id, full=False)

    async def recompute(self, user_id: str) -> None:
        """Read all documents of a user and recompute everything; raises `NotFound` for an unknown user."""
        login = await self._database.read(_login_of, require_name("user_id", user_id))
        if login is None:
            raise NotFound("user with statistics", user_id)
        await self._compute(user_id, login, run_id=None, full=True)

    async def of_user(self, login: str) -> UserStatistics | None:
        """The current statistics of a user; None if no run of the user was completed. Case is ignored."""
        return await self._database.read(_of_user, require_name("login", login), self._database.clock.now())

    async def overall(self, *, days: int = 30) -> GlobalStatistics:
        """Totals of all users, and the most active users and repositories of the last `days` days, weeks and months."""
        require_whole("days", days, least=1, most=LONGEST_SPAN)
        return await self._database.read(global_statistics.overall, days, self._database.clock.now().astimezone(UTC))

    async def _compute(self, user_id: str, login: str, *, run_id: int | None, full: bool) -> None:
        """Recount the items of a user and write the sums; repeat if another computation replaced this one."""
        tries = 1
        while True:
            held = await self._database.transaction(item_store.begin, user_id, login)
            recount = Recount(self._database, self._documents, held, full=full)
            try:
                await recount.run()
                await self._database.transaction(summary.conclude, held, run_id)
                break
            except ComputationReplaced:
                # The other computation may die before its end, so this one retries, with pauses against livelock.
                if tries == _MOST_TRIES:
                    raise
                await asyncio.sleep(_PAUSES.delay(tries).total_seconds())
                tries += 1
        # After the own sums: documents that this user took from others are subtracted there.
        await self._refresh_others()
        log.debug("statistics.computed", user_id=user_id, run_id=run_id, documents=recount.read, full=full)

    async def _refresh_others(self) -> None:
        """Update users that lost documents to this user, or to a computation that died before this step."""
        for user_id in await self._database.read(item_store.stale_users):
            await self._database.transaction(summary.refresh, user_id)


def _accounts_of(tx: Transaction, run: Run) -> list[tuple[str, str]]:
    """The accounts with statistics that own documents of a run, and their logins."""
    subject = parse_subject(run.login)
    match subject.kind:
        case SubjectKind.USER:
            return [(run.user_id, run.login)]
        case SubjectKind.ORGANIZATION:
            return [(subject.name, subject.name)]
        case _:
            owners = select(page_jobs.c.owner).where(page_jobs.c.run_id == run.id)
            known = select(_user.user_id, _user.login).where(_user.user_id.in_(owners)).order_by(_user.user_id)
            return [(row.user_id, row.login) for row in tx.execute(known)]


def _login_of(tx: Transaction, user_id: str) -> str | None:
    return tx.execute(select(_user.login).where(_user.user_id == user_id)).scalar()


def _of_user(tx: Transaction, login: str, now: datetime) -> UserStatistics | None:
    found = select(statistics_users).where(_user.login_key == login.casefold(), _user.computed_at.is_not(None))
    row = tx.execute(found.order_by(_user.computed_at.desc(), _user.user_id).limit(1)).one_or_none()
    if row is None:
        return None
    kept = msgspec.convert(row.summary, StoredSummary)
    today = now.astimezone(UTC).toordinal()
    return UserStatistics(
        user_id=row.user_id,
        login=row.login,
        run_id=row.run_id,
        computed_at=row.computed_at,
        repositories=kept.repositories,
        in_repositories=kept.in_repositories,
        by_user=ByUser() if row.account_id is None else activity_of_user(tx, row.account_id, today),
    )
