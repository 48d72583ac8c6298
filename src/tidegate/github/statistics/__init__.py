"""Statistics of users and of everybody, kept up to date by the run that brings new documents.

`Statistics` is what others use; what its results mean is told in docs/guides/statistics.md.
"""

from tidegate.github.statistics.figures import (
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
from tidegate.github.statistics.statistics import Statistics

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
