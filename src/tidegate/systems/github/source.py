"""GitHub as a source: what a run begins with, what each job asks, and what the answers mean."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidegate.engine.source import JobSpec, Reading, Subject, Task, Verdict
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.github import commits, events, kinds, known, limits, profile, reviews
from tidegate.systems.github.kinds import ListOrder
from tidegate.systems.github.listings import Lists
from tidegate.systems.github.logins import require_login
from tidegate.systems.github.profile import ProfileState
from tidegate.systems.github.repositories import Repositories
from tidegate.systems.github.requests import require_api_url, to_request
from tidegate.systems.github.settings import API_URL
from tidegate.systems.github.states import Wishes, Withheld, included
from tidegate.systems.github.statuses import Reader, interpret

_REPOSITORIES = "/repos"


class GithubSource:
    """Profile, events and repositories of a user, and what is in the repositories.

    A run's options: `include` names what to collect, and is that of the constructor where the run does not say;
    `full` reads everything again, so that what was deleted upstream is noticed in long lists too; `since`, a date or a
    time, is how far back to look at most.
    """

    name = "github"
    planning_kinds = frozenset({kinds.USER_BASIC})

    def __init__(self, api_url: str = API_URL, include: Iterable[str] = kinds.ESSENTIAL) -> None:
        self.address = self._api_url = require_api_url(api_url)
        self._include = kinds.require_kinds(include)
        self._repositories = Repositories(self._include)
        self._readers: Mapping[ListOrder, Reader] = {
            ListOrder.PROFILE: profile,
            ListOrder.TIMELINE: events,
            ListOrder.UPDATED: Lists(self._include),
            ListOrder.HISTORY: commits,
            ListOrder.PULL_REQUESTS: reviews,
        }

    def included(self, subject: Subject) -> frozenset[str]:
        """The kinds of jobs that a run for `subject` has."""
        return included(subject.options, self._include)

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        """The profile, the list of repositories, and the events."""
        login, options = require_login(subject.login), subject.options
        wishes, include = Wishes.from_options(options), self.included(subject)
        params = ProfileState(login=login, full=wishes.full, since=wishes.since).params
        listing = {**params, "include": sorted(include)}
        user = f"user:{login}"
        jobs = [
            JobSpec(kind=kinds.USER_BASIC, resource=user, params=params, priority=3),
            JobSpec(kind=kinds.USER_BASIC, resource=user + _REPOSITORIES, params=listing, priority=3),
        ]
        if kinds.USER_EVENTS in include:
            jobs.append(JobSpec(kind=kinds.USER_EVENTS, resource=user, params=params, priority=4))
        return jobs

    def request(self, task: Task, secret: str) -> Request:
        """The call for a job."""
        reader = self._reader(task)
        call = reader.ask(_as_readable(task))
        return to_request(call, api_url=self._api_url, secret=secret, purpose=f"github.{task.spec.kind.lower()}")

    def read(self, task: Task, answer: Answer) -> Reading:
        """What the answer means, and what it says of the allowance."""
        reader = self._reader(task)
        if reader is known:
            reading = interpret(task, answer, reader, self._api_url)
        else:
            reading = interpret(_as_readable(task), answer, reader, self._api_url)
            if reading.verdict is Verdict.UNAVAILABLE:
                cursor = Withheld.cursor(task, reading.reason, answer.date or answer.received_at)
                reading = msgspec.structs.replace(reading, cursor=cursor)
        if reading.allowance is not None:  # a body told it, and of another bucket than the headers
            return reading
        return msgspec.structs.replace(
            reading, allowance=limits.allowance(answer), allowance_bucket=limits.bucket(answer)
        )

    def _reader(self, task: Task) -> Reader:
        if known.stands_in(task):
            return known
        if task.spec.kind == kinds.USER_BASIC and task.spec.resource.endswith(_REPOSITORIES):
            return self._repositories
        return self._readers[kinds.REGISTRY[task.spec.kind].order]


def _as_readable(task: Task) -> Task:
    """The job as if its list had never been withheld: it goes on where the list was read last."""
    withheld = Withheld.left_for(task)
    return task if withheld is None else msgspec.structs.replace(task, cursor=withheld.before)
