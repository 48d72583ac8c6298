"""The slow and obviously right computation: all documents in a list, and a loop for every figure.

Nothing here is shared with the code that it judges, except for the names of the results.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tidegate.storage.documents import DocumentStore, StoredDocument
from tidegate.systems.github.statistics import (
    ByUser,
    Collaborator,
    DayCount,
    DayTotals,
    Durations,
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
    WeekCount,
)

KINDS = ("user", "repository", "event", "issue", "pull_request", "commit", "issue_comment", "review_comment", "review")
ONE_DAY = timedelta(days=1)
Json = dict[str, Any]


@dataclass(frozen=True)
class Deed:
    """Somebody did something in a repository that is there."""

    what: str
    owner: str
    repository: str
    account: int | None
    login: str | None
    day: date | None
    state: str | None = None
    seconds: int | None = None


async def all_documents(store: DocumentStore) -> list[StoredDocument]:
    return [document for kind in KINDS async for document in store.iterate(kind)]


class Oracle:
    """Every figure, from all documents that are there and not gone."""

    def __init__(self, documents: Sequence[StoredDocument], today: date) -> None:
        self.documents, self.today = documents, today
        self.deeds = [deed for document in documents for deed in self._deeds(document)]

    def repositories(self, user_id: str) -> OwnedRepositories:
        found = self._repositories_of(user_id)
        languages: list[Language] = []
        for name in {each["language"] for each in found if each["language"] and not each["fork"]}:
            stars = [each["stargazers_count"] for each in found if each["language"] == name and not each["fork"]]
            languages.append(Language(name=name, repositories=len(stars), stars=sum(stars)))
        starred = [StarredRepository(name=r["full_name"], stars=r["stargazers_count"]) for r in found]
        return OwnedRepositories(
            total=len(found),
            forks=len([each for each in found if each["fork"]]),
            archived=len([each for each in found if each["archived"]]),
            stars=sum(each["stargazers_count"] for each in found),
            times_forked=sum(each["forks_count"] for each in found),
            languages=tuple(sorted(languages, key=lambda each: (-each.repositories, -each.stars, each.name))),
            most_starred=tuple(sorted((s for s in starred if s.stars), key=lambda each: (-each.stars, each.name))[:10]),
        )

    def in_repositories(self, user_id: str, account: int) -> InRepositories:
        deeds = [deed for deed in self.deeds if deed.owner == user_id and deed.what != "event"]
        others = {deed.account for deed in deeds} - {None, account}
        ranked = [
            Collaborator(login=r.name, contributions=r.contributions) for r in rank_people(deeds, without=account)
        ]
        return InRepositories(
            commits=count(deeds, "commit"),
            issues=issues(deeds),
            pull_requests=pull_requests(deeds),
            reviews=count(deeds, "review"),
            comments=count(deeds, "comment"),
            collaborators=len(others),
            top_collaborators=tuple(ranked),
        )

    def by_user(self, account: int) -> ByUser:
        deeds = [deed for deed in self.deeds if deed.account == account]
        days = sorted({deed.day for deed in deeds if deed.day and deed.day <= self.today})
        streaks = all_streaks(days)
        longest = max((streak.days for streak in streaks), default=0)
        current = [streak for streak in streaks if streak.last in (self.today, self.today - ONE_DAY)]
        return ByUser(
            commits=count(deeds, "commit"),
            issues=issues(deeds),
            pull_requests=pull_requests(deeds),
            reviews=count(deeds, "review"),
            comments=count(deeds, "comment"),
            commits_per_week=tuple(self._weeks(deeds)),
            contributions_per_day=tuple(self._contributions(deeds)),
            active_days=len(days),
            first_active=days[0] if days else None,
            last_active=days[-1] if days else None,
            current_streak=current[-1] if current else Streak(),
            longest_streak=next((streak for streak in streaks if streak.days == longest), Streak()),
        )

    def totals(self, users: Iterable[str]) -> Totals:
        those = list(users)
        deeds = [deed for deed in self.deeds if deed.owner in those]
        found = [repository for user in those for repository in self._repositories_of(user)]
        return Totals(
            users=len(those),
            repositories=len(found),
            stars=sum(each["stargazers_count"] for each in found),
            commits=count(deeds, "commit"),
            issues=count(deeds, "issue"),
            pull_requests=count(deeds, "pull_request"),
            merged_pull_requests=len([d for d in deeds if d.what == "pull_request" and d.state == "merged"]),
            reviews=count(deeds, "review"),
            comments=count(deeds, "comment"),
        )

    def days(self, many: int) -> tuple[DayTotals, ...]:
        return tuple(self._day(self.today - back * ONE_DAY) for back in reversed(range(many)))

    def periods(self, many: int, name_of: Callable[[date], str]) -> tuple[Period, ...]:
        """Periods, by the name that each of their days has, from the one with the first of so many days on."""
        first = self.today - (many - 1) * ONE_DAY
        names = list(dict.fromkeys(name_of(self.today - back * ONE_DAY) for back in range(many)))
        told: list[Period] = []
        for name in names:
            days = [first + n * ONE_DAY for n in range(-35, many + 35)]
            days = [day for day in days if name_of(day) == name]
            days_so_far = [day for day in days if day <= self.today]
            deeds = [deed for deed in self.deeds if deed.day in days_so_far and deed.what != "event"]
            if deeds:
                repositories = {deed.repository for deed in deeds}
                ranked = [
                    Ranked(name=each, contributions=len([d for d in deeds if d.repository == each]))
                    for each in repositories
                ]
                told.append(
                    Period(
                        name=name,
                        first=days[0],
                        last=days[-1],
                        contributions=len(deeds),
                        users=tuple(rank_people(deeds)),
                        repositories=tuple(sorted(ranked, key=in_order)[:10]),
                    )
                )
        return tuple(told)

    def _day(self, day: date) -> DayTotals:
        deeds = [deed for deed in self.deeds if deed.day == day]
        return DayTotals(
            day=day,
            commits=count(deeds, "commit"),
            issues=count(deeds, "issue"),
            pull_requests=count(deeds, "pull_request"),
            reviews=count(deeds, "review"),
            comments=count(deeds, "comment"),
        )

    def _repositories_of(self, user_id: str) -> list[Json]:
        return [each.body for each in self.documents if each.kind == "repository" and each.owner == user_id]

    def _weeks(self, deeds: Sequence[Deed]) -> Iterable[WeekCount]:
        monday = self.today - self.today.weekday() * ONE_DAY
        for back in reversed(range(53)):
            first = monday - back * 7 * ONE_DAY
            days = [first + n * ONE_DAY for n in range(7) if first + n * ONE_DAY <= self.today]
            made = [deed for deed in deeds if deed.what == "commit" and deed.day in days]
            yield WeekCount(week=first.strftime("%G-W%V"), first=first, commits=len(made))

    def _contributions(self, deeds: Sequence[Deed]) -> Iterable[DayCount]:
        monday = self.today - self.today.weekday() * ONE_DAY
        for n in range(7 * 53):
            day = monday - 52 * 7 * ONE_DAY + n * ONE_DAY
            made = [deed for deed in deeds if deed.day == day and deed.what != "event"]
            if made and day <= self.today:
                yield DayCount(day=day, contributions=len(made))

    def _deeds(self, document: StoredDocument) -> list[Deed]:
        body, kind = document.body, document.kind
        if kind in ("user", "repository") or (kind == "issue" and "pull_request" in body):
            return []
        what = {"issue_comment": "comment", "review_comment": "comment"}.get(kind, kind)
        who = body.get({"commit": "author", "event": "actor"}.get(kind, "user"))
        if not who or who.get("type") == "Bot" or who["login"] == "ghost":
            who = None
        happened = {"commit": lambda: body["commit"]["author"]["date"], "review": lambda: body["submitted_at"]}
        at = moment(happened.get(kind, lambda: body["created_at"])())
        state, seconds = None, None
        if what == "issue":
            state = body["state"]
        if what == "pull_request":
            state = "merged" if body["merged_at"] else body["state"]
        if state in ("closed", "merged"):
            ended = moment(body["merged_at"] if state == "merged" else body["closed_at"])
            seconds = round((ended - at).total_seconds())
        if what != "event":
            same = [r for r in self._repositories_of(document.owner) if f"repo:{r['full_name']}" == document.resource]
            if not same or (what == "commit" and all(each["fork"] for each in same)):
                return []
        return [
            Deed(
                what=what,
                owner=document.owner,
                repository=document.resource.removeprefix("repo:"),
                account=who["id"] if who else None,
                login=who["login"] if who else None,
                day=at.date(),
                state=state,
                seconds=seconds,
            )
        ]


def moment(text: str) -> datetime:
    return datetime.strptime(text.replace("Z", "+00:00"), "%Y-%m-%dT%H:%M:%S%z").astimezone(UTC)


def count(deeds: Iterable[Deed], what: str) -> int:
    return len([deed for deed in deeds if deed.what == what])


def issues(deeds: Iterable[Deed]) -> Issues:
    those = [deed for deed in deeds if deed.what == "issue"]
    closed = [deed for deed in those if deed.state == "closed"]
    return Issues(
        opened=len(those),
        open=len(those) - len(closed),
        closed=len(closed),
        to_close=times([d.seconds for d in closed]),
    )


def pull_requests(deeds: Iterable[Deed]) -> PullRequests:
    those = [deed for deed in deeds if deed.what == "pull_request"]
    merged = [deed for deed in those if deed.state == "merged"]
    rejected = [deed for deed in those if deed.state == "closed"]
    return PullRequests(
        opened=len(those),
        open=len(those) - len(merged) - len(rejected),
        merged=len(merged),
        rejected=len(rejected),
        merge_rate=len(merged) / (len(merged) + len(rejected)) if merged or rejected else None,
        to_merge=times([deed.seconds for deed in merged]),
    )


def times(seconds: Sequence[int | None]) -> Durations:
    known = sorted(each for each in seconds if each is not None)
    if not known:
        return Durations()
    half, odd = divmod(len(known), 2)
    middle = float(known[half]) if odd else (known[half - 1] + known[half]) / 2
    enough = [each for each in known if 10 * len([k for k in known if k <= each]) >= 9 * len(known)]
    return Durations(cases=len(known), median_s=middle, p90_s=float(enough[0]))


def all_streaks(days: Sequence[date]) -> list[Streak]:
    """Every run of days, from the first on."""
    streaks: list[list[date]] = []
    for day in days:
        if streaks and streaks[-1][-1] + ONE_DAY == day:
            streaks[-1].append(day)
        else:
            streaks.append([day])
    return [Streak(days=len(each), first=each[0], last=each[-1]) for each in streaks]


def rank_people(deeds: Sequence[Deed], without: int | None = None) -> list[Ranked]:
    """The ten most active; whoever was renamed goes by the login of the last day."""
    ranked: list[Ranked] = []
    for account in {deed.account for deed in deeds} - {None, without}:
        own = [deed for deed in deeds if deed.account == account]
        _, login = max((deed.day or date.min, deed.login or "") for deed in own)
        ranked.append(Ranked(name=login, contributions=len(own)))
    return sorted(ranked, key=in_order)[:10]


def in_order(each: Ranked) -> tuple[int, str, str]:
    return -each.contributions, each.name.casefold(), each.name
