"""Statistics of single users and of all users, updated by the run that stores new documents.

`Statistics` is the entry point; docs/guides/statistics.md explains its results.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.github.statistics.results import (
        ByUser,
        Collaborator,
        DayCount,
        DayTotals,
        Durations,
        GlobalStatistics,
        InRepositories,
        Issues,
        Language,
        OwnedRepositories,
        Period,
        PullRequests,
        Ranked,
        StarredRepository,
        Streak,
        Totals,
        UserStatistics,
        WeekCount,
    )
    from tidegate.systems.github.statistics.statistics import Statistics

__all__ = [
    "ByUser",
    "Collaborator",
    "DayCount",
    "DayTotals",
    "Durations",
    "GlobalStatistics",
    "InRepositories",
    "Issues",
    "Language",
    "OwnedRepositories",
    "Period",
    "PullRequests",
    "Ranked",
    "StarredRepository",
    "Statistics",
    "Streak",
    "Totals",
    "UserStatistics",
    "WeekCount",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.github.statistics.results": (
            "ByUser Collaborator DayCount DayTotals Durations GlobalStatistics InRepositories Issues "
            "Language OwnedRepositories Period PullRequests Ranked StarredRepository Streak Totals UserStatistics "
            "WeekCount"
        ),
        "tidegate.systems.github.statistics.statistics": "Statistics",
    },
)
