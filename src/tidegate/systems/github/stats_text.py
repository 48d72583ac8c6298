"""Formats statistics as text: numbers and small charts, eighty columns wide."""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from itertools import islice

from rich.console import Console
from rich.text import Text

from tidegate.cli.tables import Glyphs, bar, heat, sparkline
from tidegate.cli.wording import clock, counted, number, span
from tidegate.systems.github.statistics import (
    ByUser,
    Durations,
    GlobalStatistics,
    InRepositories,
    Language,
    OwnedRepositories,
    Period,
    PullRequests,
    Ranked,
    UserStatistics,
)

_LONGEST_BAR, _LONGEST_LANGUAGE = 40, 20
_MOST_LANGUAGES, _MOST_NAMES = 8, 5
_WEEKS = 53
_CHART = "green"
_NARROWEST = 24
_TIED = "\N{NO-BREAK SPACE}"

Row = tuple[str, str, str]
"""Label, amount and note."""


def print_user(console: Console, found: UserStatistics, now: datetime) -> None:
    """Print the statistics of one user."""
    glyphs, login = Glyphs.of(console.encoding), found.login
    console.print(_title(login, found.computed_at, now))
    _print_rows(console, "OwnedRepositories", _repository_rows(found.repositories))
    if found.repositories.languages:
        lines = _language_lines(found.repositories.languages, glyphs)
        _print_lines(console, "Languages of repositories that are no forks", lines, _CHART)
    _print_rows(console, "In these repositories, by all accounts", _inside_rows(found.in_repositories))
    _print_rows(console, f"By {login}, in all collected repositories", _activity_rows(found.by_user))
    _print_charts(console, found.by_user, now.date(), glyphs)


def print_all_users(console: Console, found: GlobalStatistics, now: datetime) -> None:
    """Print the statistics of all users."""
    console.print(_title(counted(found.totals.users, "user"), found.as_of, now))
    _print_rows(console, "In their repositories, by all accounts", _total_rows(found))
    per_day = [day.contributions for day in found.days]
    under = f"{found.days[0].day} to {found.days[-1].day}, at most {number(max(per_day))} a day"
    parts = [per_day[start : start + 70] for start in range(0, len(per_day), 70)]
    charts = [sparkline(part, Glyphs.of(console.encoding), most=max(per_day)) for part in parts]
    _print_lines(console, "Contributions per day", [*charts, under], _CHART)
    newest = [periods[0] for periods in (found.by_day, found.by_week, found.by_month) if periods]
    if newest:
        _print_rows(console, "Most active users", _rank_rows(newest, lambda period: period.users))
        _print_rows(console, "Most active repositories", _rank_rows(newest, lambda period: period.repositories))


def _title(name: str, at: datetime, now: datetime) -> Text:
    return Text.assemble((name, "bold"), f"  as of {clock(at, now)}")


def _print_rows(console: Console, heading: str, rows: Iterable[Row]) -> None:
    """Print rows in three columns; notes are wrapped between names, not between a name and its number."""
    rows_shown = list(rows)
    label, amount = (max(len(row[n]) for row in rows_shown) for n in (0, 1))
    room = max(_NARROWEST, console.width - label - amount - 6)
    lines: list[str] = []
    for what, how_much, note in rows_shown:
        first, *more = textwrap.wrap(note, room, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append(f"{what:<{label}}  {how_much:>{amount}}  {first}")
        lines += [" " * (label + amount + 4) + line for line in more]
    _print_lines(console, heading, [line.replace(_TIED, " ").rstrip() for line in lines])


def _print_lines(console: Console, heading: str, lines: Iterable[str], style: str = "") -> None:
    console.print()
    console.print(Text(heading, "bold"))
    for line in lines:
        console.print(Text(f"  {line}", style), soft_wrap=True)


def _repository_rows(found: OwnedRepositories) -> Iterator[Row]:
    sorts = [counted(found.forks, "fork")] if found.forks else []
    sorts += [f"{number(found.archived)} archived"] if found.archived else []
    yield "repositories", number(found.total), ", ".join(sorts)
    starred = [(each.name.partition("/")[2], each.stars) for each in found.most_starred]
    yield "stars", number(found.stars), _names(starred)
    yield "forked by others", number(found.times_forked), ""


def _language_lines(languages: tuple[Language, ...], glyphs: Glyphs) -> Iterator[str]:
    shown = languages[:_MOST_LANGUAGES]
    width = min(_LONGEST_LANGUAGE, max(len(each.name) for each in shown))
    for each in shown:
        drawn = bar(each.repositories, languages[0].repositories, _LONGEST_BAR, glyphs)
        yield f"{each.name[:width]:<{width}}  {drawn} {number(each.repositories)}"
    if len(languages) > len(shown):
        yield f"and {counted(len(languages) - len(shown), 'more')}"


def _inside_rows(found: InRepositories) -> Iterator[Row]:
    yield from _work_rows(found)
    top = [(each.login, each.contributions) for each in found.top_collaborators]
    yield "collaborators", number(found.collaborators), _names(top)


def _activity_rows(found: ByUser) -> Iterator[Row]:
    yield from _work_rows(found)
    between = f"from {found.first_active} to {found.last_active}" if found.active_days else ""
    yield "active days", number(found.active_days), between
    now, longest = found.current_streak, found.longest_streak
    yield "current streak", number(now.days), f"since {now.first}" if now.days else ""
    yield "longest streak", number(longest.days), f"from {longest.first} to {longest.last}" if longest.days else ""


def _work_rows(found: InRepositories | ByUser) -> Iterator[Row]:
    yield "commits", number(found.commits), ""
    issues, pulls = found.issues, found.pull_requests
    yield "issues", number(issues.opened), f"{number(issues.open)} open" if issues.opened else ""
    if issues.to_close.cases:
        yield "", "", f"closed after {_took(issues.to_close)}"
    yield "pull requests", number(pulls.opened), _merging(pulls)
    if pulls.to_merge.cases:
        yield "", "", f"merged after {_took(pulls.to_merge)}"
    if found.reviews or found.comments:
        yield "reviews", number(found.reviews), ""
        yield "comments", number(found.comments), ""


def _merging(pulls: PullRequests) -> str:
    if not pulls.opened:
        return ""
    rows_shown = f"{number(pulls.open)} open, {number(pulls.merged)} merged, {number(pulls.rejected)} rejected"
    return rows_shown if pulls.merge_rate is None else f"{rows_shown}: merge rate {pulls.merge_rate:.0%}"


def _took(found: Durations) -> str:
    return f"{span(found.median_s or 0)} (median), {span(found.p90_s or 0)} (p90)"


def _print_charts(console: Console, found: ByUser, today: date, glyphs: Glyphs) -> None:
    if not found.commits_per_week:
        return
    commits = [week.commits for week in found.commits_per_week]
    first, last = found.commits_per_week[0], found.commits_per_week[-1]
    under = f"{first.week} to {last.week}, at most {number(max(commits))} a week"
    _print_lines(console, "Commits per week", [f"    {sparkline(commits, glyphs)}", f"    {under}"], _CHART)
    counts = {each.day: each.contributions for each in found.contributions_per_day}
    _print_lines(console, "Contributions per day", heat(counts, today, _WEEKS, glyphs), _CHART)


def _total_rows(found: GlobalStatistics) -> Iterator[Row]:
    totals = found.totals
    yield "repositories", number(totals.repositories), counted(totals.stars, "star")
    yield "commits", number(totals.commits), ""
    yield "issues", number(totals.issues), ""
    yield "pull requests", number(totals.pull_requests), f"{number(totals.merged_pull_requests)} merged"
    if totals.reviews or totals.comments:
        yield "reviews", number(totals.reviews), ""
        yield "comments", number(totals.comments), ""


def _rank_rows(periods: Iterable[Period], ranked: Callable[[Period], tuple[Ranked, ...]]) -> Iterator[Row]:
    """Total contributions of each period, with the most active names."""
    for period in periods:
        yield (
            period.name,
            number(period.contributions),
            _names((each.name, each.contributions) for each in ranked(period)),
        )


def _names(found: Iterable[tuple[str, int]]) -> str:
    """The first names, each joined to its number by a no-break space."""
    return ", ".join(f"{name}{_TIED}{number(count)}" for name, count in islice(found, _MOST_NAMES))
