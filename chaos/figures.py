"""Whether the statistics are those of the documents: compared with a slow computation that shares nothing with them."""

from collections.abc import Sequence
from datetime import date

from tests.systems.github.statistics.oracle import Oracle, all_documents

from tidegate.storage.documents import DocumentStore
from tidegate.storage.sql import Database
from tidegate.systems.github.statistics import Statistics


async def wrong_figures(
    database: Database, documents: DocumentStore, logins: Sequence[str], accounts: Sequence[int]
) -> list[str]:
    """Differences in the statistics of these users, which must be all users, and in the global statistics."""
    statistics = Statistics(database, documents)
    overall = await statistics.overall()
    oracle = Oracle(await all_documents(documents), overall.as_of.date())
    wrong: list[str] = []
    for login, account in zip(logins, accounts, strict=True):
        found = await statistics.of_user(login)
        if found is None:
            wrong.append(f"there are no statistics of {login}")
            continue
        told = {
            "repositories": found.repositories == oracle.repositories(login),
            "what was done in the repositories": found.in_repositories == oracle.in_repositories(login, account),
            "deeds": found.by_user == oracle.by_user(account),
        }
        wrong += [f"statistics of {login}: the {what} are wrong" for what, is_right in told.items() if not is_right]
    everybody = {
        "totals": overall.totals == oracle.totals(logins),
        "days": overall.days == oracle.days(30),
        "most active by day": overall.by_day == oracle.periods(30, date.isoformat),
        "most active by month": overall.by_month == oracle.periods(30, lambda day: day.strftime("%Y-%m")),
    }
    return wrong + [f"global statistics: the {what} are wrong" for what, right in everybody.items() if not right]
