"""The results of statistics, which can be encoded as JSON; all days are days in UTC.

Two things that are easily confused have different names: `by_user` is the activity of the user in any collected
repository; `in_repositories` is the activity of all accounts in the repositories of the user.
"""

from datetime import date, datetime

import msgspec


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds, over all cases that have ended."""

    cases: int = 0
    median_s: float | None = None
    """The median; None if there is no case."""
    p90_s: float | None = None
    """The 90th percentile, by rank."""


class Issues(msgspec.Struct, frozen=True, kw_only=True):
    """Issues, without pull requests."""

    opened: int = 0
    """Number of all issues."""
    open: int = 0
    """Number of open issues."""
    closed: int = 0
    to_close: Durations = Durations()
    """From opened to closed, for issues that are closed now."""


class PullRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Pull requests by state."""

    opened: int = 0
    """Number of all pull requests."""
    open: int = 0
    """Number of open pull requests."""
    merged: int = 0
    rejected: int = 0
    """Closed without a merge."""
    merge_rate: float | None = None
    """Merged ones among those that are not open, from 0 to 1; None if all are open."""
    to_merge: Durations = Durations()
    """From opened to merged."""


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """A language, and the number of repositories with it as main language."""

    name: str
    repositories: int
    stars: int
    """Total stars of these repositories."""


class StarredRepository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository and its stars."""

    name: str
    """`owner/name`."""
    stars: int


class OwnedRepositories(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories that the user owns."""

    total: int = 0
    forks: int = 0
    """Number of forks of other repositories."""
    archived: int = 0
    stars: int = 0
    """Total stars of all repositories."""
    times_forked: int = 0
    """Number of forks made by others."""
    languages: tuple[Language, ...] = ()
    """Main languages of repositories that are not forks, most frequent first."""
    most_starred: tuple[StarredRepository, ...] = ()


class Collaborator(msgspec.Struct, frozen=True, kw_only=True):
    """Another account that contributed to the user's repositories."""

    login: str
    contributions: int


class InRepositories(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of all accounts, known or unknown, in the repositories that the user owns."""

    commits: int = 0
    """Commits of default branches, without forks, because most commits of forks were made elsewhere."""
    issues: Issues = Issues()
    pull_requests: PullRequests = PullRequests()
    reviews: int = 0
    comments: int = 0
    collaborators: int = 0
    """Number of other accounts with a contribution in them."""
    top_collaborators: tuple[Collaborator, ...] = ()


class Streak(msgspec.Struct, frozen=True, kw_only=True):
    """A series of consecutive active days."""

    days: int = 0
    first: date | None = None
    last: date | None = None


class WeekCount(msgspec.Struct, frozen=True, kw_only=True):
    """Commits in an ISO week."""

    week: str
    """`2026-W01`."""
    first: date
    """Monday of the week."""
    commits: int


class DayCount(msgspec.Struct, frozen=True, kw_only=True):
    """Contributions on a day."""

    day: date
    contributions: int


class ByUser(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of the user in own repositories, and in collected repositories of other users.

    A contribution is a commit, an opened issue or pull request, a review, or a comment.
    """

    commits: int = 0
    """By the author's account and date, in repositories that are not forks."""
    issues: Issues = Issues()
    pull_requests: PullRequests = PullRequests()
    reviews: int = 0
    comments: int = 0
    commits_per_week: tuple[WeekCount, ...] = ()
    """The last 53 weeks up to the current one, including weeks without commits."""
    contributions_per_day: tuple[DayCount, ...] = ()
    """The same weeks; days without contributions are omitted."""
    active_days: int = 0
    """Days with a contribution or a public event."""
    first_active: date | None = None
    last_active: date | None = None
    current_streak: Streak = Streak()
    """Active days up to today, or up to yesterday if today is not active yet."""
    longest_streak: Streak = Streak()
    """The longest streak; of several, the earliest."""


class UserStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one user."""

    user_id: str
    login: str
    run_id: int | None
    """The last run with counted documents; None after a recomputation without one."""
    computed_at: datetime
    repositories: OwnedRepositories
    in_repositories: InRepositories
    by_user: ByUser


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all collected users, including the activity of other accounts in their repositories."""

    users: int = 0
    repositories: int = 0
    stars: int = 0
    commits: int = 0
    issues: int = 0
    pull_requests: int = 0
    merged_pull_requests: int = 0
    reviews: int = 0
    comments: int = 0


class DayTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Activity on one day in all repositories."""

    day: date
    commits: int = 0
    issues: int = 0
    pull_requests: int = 0
    reviews: int = 0
    comments: int = 0

    @property
    def contributions(self) -> int:
        """Sum of all kinds of contributions."""
        return self.commits + self.issues + self.pull_requests + self.reviews + self.comments


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A user or repository with its contributions in a period."""

    name: str
    """A login, or `owner/name`."""
    contributions: int


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A day, an ISO week or a month with activity."""

    name: str
    """`2026-02-28`, `2026-W09`, `2026-02`."""
    first: date
    last: date
    contributions: int
    """Contributions of all accounts, including unknown ones."""
    users: tuple[Ranked, ...]
    """The most active users, up to ten; known accounts, collected or not, without bots."""
    repositories: tuple[Ranked, ...]
    """The most active repositories, up to ten."""


class GlobalStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of all users."""

    as_of: datetime
    totals: Totals
    days: tuple[DayTotals, ...]
    """Every day of the requested range, oldest first."""
    by_day: tuple[Period, ...]
    """Days of the range, newest first."""
    by_week: tuple[Period, ...]
    """Whole weeks that overlap the range, newest first."""
    by_month: tuple[Period, ...]
    """Whole months that overlap the range, newest first."""
