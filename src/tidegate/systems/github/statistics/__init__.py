"""Statistics of users and of everybody, kept up to date by the run that brings new documents.

`Statistics` is what others use; what its results mean is told in docs/guides/statistics.md.
"""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.github.statistics.figures import (
        ByUser,
        Collaborator,
        DayCount,
        DayTotals,
        Durations,
        GlobalStatistics,
        InRepositories,
        Issues,
        Language,
        Period,
        PullRequests,
        Ranked,
        Repositories,
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
    "Period",
    "PullRequests",
    "Ranked",
    "Repositories",
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
        "tidegate.systems.github.statistics.figures": (
            "ByUser Collaborator DayCount DayTotals Durations GlobalStatistics InRepositories Issues "
            "Language Period PullRequests Ranked Repositories StarredRepository Streak Totals UserStatistics "
            "WeekCount"
        ),
        "tidegate.systems.github.statistics.statistics": "Statistics",
    },
)
