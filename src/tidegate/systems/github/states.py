"""What the jobs of GitHub carry in their parameters: options of the run, selected repositories, the repository.

Also the cursor that remembers that GitHub lists a repository but refuses its contents (`WithheldRepository`), so that
the repository is not requested in every run.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import FIRST_PAGE, Cursor, JobSpec, Reading, Task, Verdict
from tidegate.systems.github import kinds

_WITHHELD = "withheld:"
"""Prefix of the cursor of a withheld list; no other cursor starts with it."""
_TRUSTED_FOR, _LONGEST_TRUSTED = timedelta(hours=1), timedelta(days=7)
_MOST_REFUSALS = 8
"""Maximum number of pools in such a cursor."""
OPTIONS = frozenset({"full", "include", "since", "repos", "exclude", "archived", "forks"})
"""The names of all options of a run."""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of states that are stored in the parameters of a job."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Parse the state from the parameters of a job."""
        return msgspec.convert(task.spec.params, cls)

    @property
    def params(self) -> dict[str, Any]:
        """The state as parameters of a job."""
        return msgspec.to_builtins(self)


class RunOptions(State, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a run that all its jobs need."""

    full: bool = False
    """Collect everything again, so that deletions are detected."""
    since: str | None = None
    """Oldest time to read, in the format of the upstream; None: no limit."""

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> "RunOptions":
        """Parse the options of a run: `full` is a boolean, `since` a date or a time."""
        for name in sorted(options.keys() - OPTIONS):
            raise InvalidArgument("options", name, f"must be among {', '.join(sorted(OPTIONS))}")
        full, since = options.get("full", False), options.get("since")
        if not isinstance(full, bool):
            raise InvalidArgument("full", full, "must be true or false")
        return RunOptions(full=full, since=None if since is None else parse_since(since))


class Selection(State, frozen=True, kw_only=True, omit_defaults=True):
    """Selects the repositories to collect. Of the others, only the repository's own document is stored."""

    repos: tuple[str, ...] = ()
    """Only repositories that match one of these patterns. A pattern with a slash is compared with `owner/name`, any
    other with the name."""
    exclude: tuple[str, ...] = ()
    """No repositories that match one of these patterns."""
    archived: bool | None = None
    """true: only archived repositories; false: only others; None: both."""
    forks: bool | None = None
    """true: only forks; false: only others; None: both."""

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> "Selection":
        """Parse the options of a run."""
        patterns = {name: _patterns(name, options.get(name)) for name in ("repos", "exclude")}
        for name in ("archived", "forks"):
            if not isinstance(options.get(name), bool | None):
                raise InvalidArgument(name, options.get(name), "must be true or false")
        return Selection(**patterns, archived=options.get("archived"), forks=options.get("forks"))

    def includes(self, found: "ListedRepository") -> bool:
        """Whether a repository is collected."""
        if self.repos and not any(_matches(found.full_name, pattern) for pattern in self.repos):
            return False
        if any(_matches(found.full_name, pattern) for pattern in self.exclude):
            return False
        is_other_age = self.archived is not None and self.archived is not found.is_archived
        return not is_other_age and (self.forks is None or self.forks is found.is_fork)


def _patterns(name: str, given: object) -> tuple[str, ...]:
    patterns: Sequence[object] = given if isinstance(given, list | tuple) else [] if given is None else [given]
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern or not pattern.isprintable():
            raise InvalidArgument(name, pattern, "must be a list of patterns, like docs-*")
    return tuple(str(pattern) for pattern in patterns)


def _matches(full_name: str, pattern: str) -> bool:
    name = full_name if "/" in pattern else full_name.partition("/")[2]
    return fnmatchcase(name.lower(), pattern.lower())


def kinds_to_collect(options: Mapping[str, Any], default: frozenset[str]) -> frozenset[str]:
    """Return the kinds of documents to collect: those that the option `include` lists, otherwise the default."""
    include = options.get("include")
    if include is None:
        return default
    if not isinstance(include, list | tuple) or not include:
        raise InvalidArgument("include", include, "must be a list of names")
    named: Sequence[object] = include
    return kinds.require_kinds([str(name) for name in named])


def parse_since(since: object) -> str:
    """Parse the option `since`, a date or a time, and return it in the format of the upstream.

    A time without a zone is UTC. Raises `InvalidArgument` for anything else.
    """
    try:
        moment = datetime.fromisoformat(str(since))
    except ValueError:
        raise InvalidArgument("since", since, "must be a date or a time, like 2026-01-31") from None
    return format_upstream_time(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment)


class ListedRepository(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repository in the list of its owner. Its number is permanent; its name can change."""

    id: int
    full_name: str
    node_id: str = ""
    has_issues: bool = True
    pushed_at: str | None = None
    is_archived: bool = False
    is_fork: bool = False
    default_branch: str = ""
    has_discussions: bool = True

    @property
    def owner(self) -> str:
        """The owner's login in lower case."""
        return self.full_name.partition("/")[0].lower()

    def has_list(self, kind: str) -> bool:
        """Whether it has the list of this kind: issues and discussions can be disabled."""
        enabled_by = kinds.REGISTRY[kind].enabled_by
        return enabled_by is None or bool(getattr(self, enabled_by))

    @property
    def resource(self) -> str:
        """The resource of its jobs and documents."""
        return f"{kinds.REPOSITORY_PREFIX}{self.full_name}"

    @property
    def path(self) -> str:
        """The API path by number, because a name can be reused by another account."""
        return f"/repositories/{self.id}"


class _Owner(msgspec.Struct):
    id: int | None = None


class ShownRepository(msgspec.Struct):
    """A repository in an answer, alone or in a list."""

    id: int
    full_name: Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+$", max_length=180)]
    node_id: str | None = None
    has_issues: bool | None = None
    pushed_at: str | None = None
    updated_at: str | None = None
    owner: _Owner | None = None
    archived: bool | None = None
    fork: bool | None = None
    default_branch: str | None = None
    has_discussions: bool | None = None

    @property
    def repository(self) -> ListedRepository:
        """The fields that are stored in parameters of jobs."""
        return ListedRepository(
            self.id,
            self.full_name,
            self.node_id or "",
            self.has_issues is not False,
            self.pushed_at,
            bool(self.archived),
            bool(self.fork),
            self.default_branch or "",
            self.has_discussions is not False,
        )


class RepositoryScope(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of states of lists in a repository."""

    repository: ListedRepository
    has_reviews: bool | None = None
    """Whether reviews are collected after pull requests; None: the default of the source."""
    details: tuple[str, ...] = ()
    """The kinds of details that the run collects, see `details`."""
    listed_at: str | None = None
    """When the list of repositories was read, by the upstream's clock."""


def account_replaced(login: str, former: str, present: int) -> Reading:
    """Return the reading for a login that belongs to another account now; it ends the job and stores nothing.

    A released login can be registered by another account. Documents of both would be mixed up under one user.
    `former` and `present` are the numbers of the accounts.
    """
    reason = (
        f"{login} is a different account now: its number is {present}, was {former}. Nothing of it was stored; "
        "a full run (--full) accepts the new account and marks the documents of the former one as gone"
    )
    return Reading(verdict=Verdict.GONE, reason=reason)


def repository_transferred(owner: str) -> Reading:
    """Return the reading that ends a list of a repository that got a new `owner` during the run."""
    return Reading(
        verdict=Verdict.GONE, reason=f"the repository was transferred to {owner}, and is collected with that user"
    )


def repository_jobs(
    found: ListedRepository, include: frozenset[str], scope: RunOptions, *, owner: str, listed_at: str | None = None
) -> list[JobSpec]:
    """The first job of a repository; none if no kind of it is collected.

    `owner` is the owner of the documents. It is the same for all subjects that include the repository, so they share
    its cursors, and the job claims it: only one of several runs collects it at a time.

    A repository may be listed but withheld. So one list is read first, and the others follow unless it shows that
    nothing can be read. Lists that are disabled are omitted.

    A list with an ETag is assigned to the credential that received it, which the cursors record. A list without one can
    be read by any credential of the pool, so that all of them share the first collection.
    """
    wanted = [kind for kind in kinds.OF_REPOSITORIES if kind in include and found.has_list(kind)]
    if not wanted:
        return []
    state = RepositoryScope(
        repository=found,
        full=scope.full,
        since=scope.since,
        has_reviews=kinds.REPO_REVIEWS in include if kinds.REPO_PRS in wanted else None,
        details=tuple(kind for kind in kinds.DETAILS if kind in include),
        listed_at=listed_at,
    )
    # One list is a probe for all: a withheld repository costs one call instead of one for each list.
    first, *others = wanted
    return [
        JobSpec(
            kind=first,
            resource=found.resource,
            params=state.params,
            bucket=kinds.bucket_of(first),
            owner=owner,
            claims=True,
            followed_by=tuple(others),
            other_buckets={
                kind: bucket for kind in others if (bucket := kinds.bucket_of(kind)) != kinds.bucket_of(first)
            },
        )
    ]


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that the credentials of one pool were refused."""

    reason: str
    pushed_at: str | None
    """Time of the last push, from the list of repositories."""
    first_at: str
    """Time of the first refused probe."""
    last_at: str
    """Time of the last refused probe."""


class WithheldRepository(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored as the cursor of a list while GitHub lists its repository but withholds its contents.

    Pools may have different access, so each pool has its own refusal. It is valid for an hour, and after each probe
    that confirms it for as long as it has lasted, up to a week. So a temporary 404 is corrected soon, and a repository
    that stays withheld costs one call per week.
    """

    refusals: dict[str, Refusal]
    """Refusals by pool, oldest first."""
    before: Cursor | None = None
    """The cursor of the list for when it can be read again."""

    @staticmethod
    def cursor(task: Task, reason: str, at: datetime) -> Cursor | None:
        """The cursor after the first page of a withheld list; None for any other job."""
        if task.spec.kind not in kinds.OF_REPOSITORIES or task.spec.page != FIRST_PAGE:
            return None
        left, now = (
            WithheldRepository.stored_for(task) or WithheldRepository(refusals={}, before=task.cursor),
            format_upstream_time(at),
        )
        others = {pool: each for pool, each in left.refusals.items() if pool != task.pool}
        former = left.refusals.get(task.pool)
        refusal = Refusal(
            reason, RepositoryScope.of(task).repository.pushed_at, now if former is None else former.first_at, now
        )
        # The latest refusal goes to the end, so that the bound drops the oldest one.
        refusals = dict([*others.items(), (task.pool, refusal)][-_MOST_REFUSALS:])
        found = WithheldRepository(refusals=refusals, before=left.before)
        return Cursor(cursor=_WITHHELD + msgspec.json.encode(found).decode())

    @staticmethod
    def stored_for(task: Task) -> "WithheldRepository | None":
        """The record of earlier runs, if this list was withheld from any of them."""
        left = "" if task.cursor is None else task.cursor.cursor or ""
        if not left.startswith(_WITHHELD):
            return None
        return msgspec.json.decode(left.removeprefix(_WITHHELD), type=WithheldRepository)

    @staticmethod
    def valid_refusal(task: Task) -> Refusal | None:
        """The refusal of this pool if it is recent enough to need no call; None after a push and in a full run."""
        left, state = WithheldRepository.stored_for(task), RepositoryScope.of(task)
        refusal = None if left is None else left.refusals.get(task.pool)
        if refusal is None or state.full or state.listed_at is None or state.repository.pushed_at != refusal.pushed_at:
            return None
        # All times are of the upstream's clock, so different local clocks do not matter.
        last = datetime.fromisoformat(refusal.last_at)
        lasted = last - datetime.fromisoformat(refusal.first_at)
        age = datetime.fromisoformat(state.listed_at) - last
        return refusal if age < min(max(lasted, _TRUSTED_FOR), _LONGEST_TRUSTED) else None


def format_upstream_time(moment: datetime) -> str:
    """Format a time as the upstream does, in UTC: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
