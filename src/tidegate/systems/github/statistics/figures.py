"""What is told of users and of everybody. All of it can be written as JSON; all days are days in UTC.

Two things that are easily confused are kept apart by name: `by_user` is what the user did, in any repository that was
collected; `in_repositories` is what anybody did in the repositories of the user.
"""

from datetime import date, datetime

import msgspec


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, in seconds, over all cases where it has ended."""

    cases: int = 0
    median_s: float | None = None
    """The middle one, or the mean of the two in the middle; None where there is no case."""
    p90_s: float | None = None
    """No more than this in nine of ten cases (the least of the durations of which that is true)."""


class Issues(msgspec.Struct, frozen=True, kw_only=True):
    """Issues that were opened; a pull request is none."""

    opened: int = 0
    """All of them."""
    open: int = 0
    """Those that are open now."""
    closed: int = 0
    to_close: Durations = Durations()
    """From opened to closed, for those that are closed now."""


class PullRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Pull requests that were opened."""

    opened: int = 0
    """All of them."""
    open: int = 0
    """Those that are open now."""
    merged: int = 0
    rejected: int = 0
    """Closed without a merge."""
    merge_rate: float | None = None
    """Merged ones among those that are not open any more, from 0 to 1; None where all are open."""
    to_merge: Durations = Durations()
    """From opened to merged."""


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """A language, and in how many repositories it is the main one."""

    name: str
    repositories: int
    stars: int
    """Of those repositories together."""


class StarredRepository(msgspec.Struct, frozen=True, kw_only=True):
    """A repository and its stars."""

    name: str
    """`owner/name`."""
    stars: int


class Repositories(msgspec.Struct, frozen=True, kw_only=True):
    """The repositories that the user owns."""

    total: int = 0
    forks: int = 0
    """Those that are forks of somebody else's."""
    archived: int = 0
    stars: int = 0
    """Of all of them together."""
    times_forked: int = 0
    """How often others forked them."""
    languages: tuple[Language, ...] = ()
    """The main language of each repository that is no fork; the most frequent first."""
    most_starred: tuple[StarredRepository, ...] = ()


class Collaborator(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else who contributed to the user's repositories."""

    login: str
    contributions: int


class InRepositories(msgspec.Struct, frozen=True, kw_only=True):
    """What anybody, known or unknown, did in the repositories that the user owns."""

    commits: int = 0
    """Of default branches; forks are left out, since most of their commits were made elsewhere."""
    issues: Issues = Issues()
    pull_requests: PullRequests = PullRequests()
    reviews: int = 0
    comments: int = 0
    collaborators: int = 0
    """People other than the user with a contribution in them."""
    top_collaborators: tuple[Collaborator, ...] = ()


class Streak(msgspec.Struct, frozen=True, kw_only=True):
    """Days in a row."""

    days: int = 0
    first: date | None = None
    last: date | None = None


class WeekCount(msgspec.Struct, frozen=True, kw_only=True):
    """Commits in an ISO week."""

    week: str
    """`2026-W01`."""
    first: date
    """Its Monday."""
    commits: int


class DayCount(msgspec.Struct, frozen=True, kw_only=True):
    """Contributions on a day."""

    day: date
    contributions: int


class ByUser(msgspec.Struct, frozen=True, kw_only=True):
    """What the user did: in the own repositories, and in those of other users that were collected.

    A contribution is a commit, an issue or a pull request that was opened, a review, or a comment.
    """

    commits: int = 0
    """By the author's account and date, in repositories that are no forks."""
    issues: Issues = Issues()
    pull_requests: PullRequests = PullRequests()
    reviews: int = 0
    comments: int = 0
    commits_per_week: tuple[WeekCount, ...] = ()
    """Of the last 53 weeks up to this one, also those without a commit."""
    contributions_per_day: tuple[DayCount, ...] = ()
    """Of the same weeks; days without any are left out."""
    active_days: int = 0
    """Days with a contribution or a public event."""
    first_active: date | None = None
    last_active: date | None = None
    current_streak: Streak = Streak()
    """Active days in a row up to today, or up to yesterday where today is not active so far."""
    longest_streak: Streak = Streak()
    """The earliest of the longest."""


class UserStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one user."""

    user_id: str
    login: str
    run_id: int | None
    """The last run whose documents are counted; None after a recomputation without one."""
    computed_at: datetime
    repositories: Repositories
    in_repositories: InRepositories
    by_user: ByUser


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all users that were collected; everything in their repositories, whoever did it."""

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
    """What happened on a day in all repositories."""

    day: date
    commits: int = 0
    issues: int = 0
    pull_requests: int = 0
    reviews: int = 0
    comments: int = 0

    @property
    def contributions(self) -> int:
        """All of them."""
        return self.commits + self.issues + self.pull_requests + self.reviews + self.comments


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a repository, and its contributions in a period."""

    name: str
    """A login, or `owner/name`."""
    contributions: int


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """A day, an ISO week or a month in which something happened."""

    name: str
    """`2026-02-28`, `2026-W09`, `2026-02`."""
    first: date
    last: date
    contributions: int
    """Of everybody, also where nobody knows who it was."""
    users: tuple[Ranked, ...]
    """The most active first, ten at most; accounts that are known, collected or not, and no bots."""
    repositories: tuple[Ranked, ...]
    """The most active first, ten at most."""


class GlobalStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of everybody."""

    as_of: datetime
    totals: Totals
    days: tuple[DayTotals, ...]
    """Every day of the span asked for, the oldest first."""
    by_day: tuple[Period, ...]
    """Days of the span, the newest first."""
    by_week: tuple[Period, ...]
    """Weeks that touch the span, whole, the newest first."""
    by_month: tuple[Period, ...]
    """Months that touch the span, whole, the newest first."""
