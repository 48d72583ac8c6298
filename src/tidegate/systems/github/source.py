"""The GitHub source: the first jobs of a run, the request of each job, and the meaning of answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tidegate.engine.source import JobSpec, Reading, Subject, Task, Verdict
from tidegate.engine.upstream import Answer, Request
from tidegate.systems.github import (
    batches,
    commits,
    connections,
    details,
    events,
    kinds,
    known,
    limits,
    pages,
    profile,
    repository,
    reviews,
)
from tidegate.systems.github.kinds import ListOrder
from tidegate.systems.github.listings import Lists
from tidegate.systems.github.page_loops import PageTrail, is_next_page
from tidegate.systems.github.profile import ProfileState
from tidegate.systems.github.repositories import Repositories, RepositoriesState
from tidegate.systems.github.repository import RepositoryState
from tidegate.systems.github.requests import GithubCall, require_api_url, to_request
from tidegate.systems.github.settings import API_URL
from tidegate.systems.github.states import RunOptions, Selection, State, WithheldRepository, kinds_to_collect
from tidegate.systems.github.statuses import AnswerReader, interpret
from tidegate.systems.github.subjects import GithubSubject, SubjectKind, require_subject

_REPOSITORIES = "/repos"


class GithubSource:
    """Users, organizations, repositories and searches, and the contents of repositories; see `subjects`.

    Options of a run: `include` names the kinds to collect, by default those of the constructor; `full` collects
    everything again, which also detects deletions in long lists; `since`, a date or a time, limits how far back to
    read; `repos`, `exclude`, `archived` and `forks` select repositories.
    """

    name = "github"
    planning_kinds = frozenset({kinds.USER_BASIC})

    def __init__(self, api_url: str = API_URL, include: Iterable[str] = kinds.ESSENTIAL) -> None:
        self.address = self._api_url = require_api_url(api_url)
        self._include = kinds.require_kinds(include)
        self._repositories = Repositories(self._include)
        self._readers: Mapping[ListOrder, AnswerReader] = {
            ListOrder.PROFILE: profile,
            ListOrder.TIMELINE: events,
            ListOrder.UPDATED: Lists(self._include),
            ListOrder.HISTORY: commits,
            ListOrder.CONNECTION: connections,
            ListOrder.PULL_REQUESTS: reviews,
            ListOrder.PAGES: pages,
            ListOrder.NEWEST: pages,
            ListOrder.DETAILS: details,
            ListOrder.BATCHES: batches,
        }

    def kinds_to_collect(self, subject: Subject) -> frozenset[str]:
        """The kinds of jobs of a run for `subject`."""
        return kinds_to_collect(subject.options, self._include)

    def first_jobs(self, subject: Subject) -> Sequence[JobSpec]:
        """The first jobs of a run: the subject itself, its repositories, and the events of a user."""
        wanted, options = require_subject(subject.login), subject.options
        scope, include = RunOptions.from_options(options), tuple(sorted(self.kinds_to_collect(subject)))
        asked: dict[str, Any] = {"full": scope.full, "since": scope.since}
        selection = Selection.from_options(options)
        match wanted.kind:
            case SubjectKind.REPOSITORY:
                state = RepositoryState(full_name=wanted.name, include=include, **asked)
                return [_planning_job(wanted.id, state, owner=wanted.account)]
            case SubjectKind.SEARCH:
                state = RepositoriesState(query=wanted.name, selection=selection, include=include, **asked)
                return [_planning_job(f"{wanted.id}{_REPOSITORIES}", state, bucket="search")]
            case SubjectKind.ORGANIZATION:
                lists = [each for each in kinds.OF_ORGANIZATIONS if each in include]
                return [
                    *_of_account(wanted, selection, include, asked, owner=wanted.name),
                    *(pages.of_organization(each, wanted.name, scope) for each in lists),
                ]
            case SubjectKind.USER:
                jobs = _of_account(wanted, selection, include, asked, owner="")
                if kinds.USER_EVENTS in include:
                    events_of = ProfileState(login=wanted.name, **asked).params
                    jobs.append(
                        JobSpec(kind=kinds.USER_EVENTS, resource=f"user:{wanted.name}", params=events_of, priority=4)
                    )
                return jobs

    def request(self, task: Task, secret: str) -> Request:
        """Build the request of a job."""
        call = self._call(task)
        return to_request(call, api_url=self._api_url, secret=secret, purpose=f"github.{task.spec.kind.lower()}")

    def read(self, task: Task, answer: Answer) -> Reading:
        """Interpret an answer, and read the allowance from it."""
        reader = self._reader(task)
        if reader is known:
            reading = interpret(task, answer, reader, self._api_url)
        else:
            reading = self._without_loop(task, interpret(_as_readable(task), answer, reader, self._api_url))
            # Remember that the list is withheld, with the former cursor, so that the next runs make no paid call.
            if reading.verdict is Verdict.UNAVAILABLE:
                cursor = WithheldRepository.cursor(task, reading.reason, answer.date or answer.received_at)
                reading = msgspec.structs.replace(reading, cursor=cursor)
        if reading.allowance is not None:  # read from the body, which has another bucket than the headers
            return reading
        return msgspec.structs.replace(
            reading, allowance=limits.allowance(answer), allowance_bucket=limits.bucket(answer)
        )

    def _without_loop(self, task: Task, reading: Reading) -> Reading:
        """The reading, unless the next page of the list was read before in this pass over the list."""
        if not any(is_next_page(following, task) for following in reading.follow_ups):
            return reading
        trail, onwards = PageTrail.of(task, self._call(task)), list[JobSpec]()
        for following in reading.follow_ups:
            if not is_next_page(following, task):
                onwards.append(following)
            elif trail.leads_back(following, self._call(msgspec.structs.replace(task, spec=following))):
                reason = f"the links to the next page lead in a circle, after {trail.pages} pages"
                return Reading(verdict=Verdict.RETRY, reason=reason)
            else:
                onwards.append(trail.stored_in(following))
        return msgspec.structs.replace(reading, follow_ups=onwards)

    def _call(self, task: Task) -> GithubCall:
        return self._reader(task).ask(_as_readable(task))

    def _reader(self, task: Task) -> AnswerReader:
        # Checked first: the job of any kind may be replaced by the free call.
        if known.stands_in(task):
            return known
        if task.spec.kind == kinds.USER_BASIC and task.spec.resource.endswith(_REPOSITORIES):
            return self._repositories
        if task.spec.kind == kinds.USER_BASIC and task.spec.resource.startswith(kinds.REPOSITORY_PREFIX):
            return repository
        return self._readers[kinds.REGISTRY[task.spec.kind].order]


def _of_account(
    wanted: GithubSubject, selection: Selection, include: tuple[str, ...], asked: Mapping[str, Any], *, owner: str
) -> list[JobSpec]:
    """The jobs for the account and its repositories."""
    is_organization = wanted.kind is SubjectKind.ORGANIZATION
    named: dict[str, Any] = {"login": wanted.name, "is_organization": is_organization, **asked}
    resource = wanted.id if is_organization else f"user:{wanted.name}"
    profile_of = ProfileState(**named)
    listing = RepositoriesState(**named, selection=selection, include=include)
    return [
        _planning_job(resource, profile_of, owner=owner),
        _planning_job(f"{resource}{_REPOSITORIES}", listing, owner=owner),
    ]


def _planning_job(resource: str, state: State, *, owner: str | None = "", bucket: str = "core") -> JobSpec:
    return JobSpec(
        kind=kinds.USER_BASIC, resource=resource, params=state.params, priority=3, owner=owner or "", bucket=bucket
    )


def _as_readable(task: Task) -> Task:
    """The job without the record that its list was withheld: it continues from the last cursor of the list."""
    withheld = WithheldRepository.stored_for(task)
    return task if withheld is None else msgspec.structs.replace(task, cursor=withheld.before)
