"""What jobs carry from page to page, and what they find out about a repository beforehand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from tidegate.collect.source import JobSpec, Task
from tidegate.github import kinds
from tidegate.kernel.errors import InvalidArgument


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Carried in the parameters of a job."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """What the job carries."""
        return msgspec.convert(task.spec.params, cls)

    @property
    def params(self) -> dict[str, Any]:
        """As parameters of a job."""
        return msgspec.to_builtins(self)


class Wishes(State, frozen=True, kw_only=True, omit_defaults=True):
    """What the run asked for."""

    full: bool = False
    """Read everything again, so that what is missing upstream is noticed."""
    since: str | None = None
    """How far back to look at most, as the upstream writes times."""

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> "Wishes":
        """What a run's options say: `full` is a truth value, `since` a date or a time."""
        full, since = options.get("full", False), options.get("since")
        if not isinstance(full, bool):
            raise InvalidArgument("full", full, "must be true or false")
        return Wishes(full=full, since=None if since is None else _as_upstream(since))


def _as_upstream(since: object) -> str:
    try:
        moment = datetime.fromisoformat(str(since))
    except ValueError:
        raise InvalidArgument("since", since, "must be a date or a time, like 2026-01-31") from None
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return zoned.strftime("%Y-%m-%dT%H:%M:%SZ")


class Repository(msgspec.Struct, frozen=True, omit_defaults=True):
    """A repository as its owner's list told of it. Its number stays when its name changes."""

    id: int
    full_name: str
    node_id: str = ""
    has_issues: bool = True
    pushed_at: str | None = None

    @property
    def resource(self) -> str:
        """Under which its jobs and documents are found."""
        return f"repo:{self.full_name}"

    @property
    def path(self) -> str:
        """By number: a name may be somebody else's tomorrow."""
        return f"/repositories/{self.id}"


class OfRepository(Wishes, frozen=True, kw_only=True, omit_defaults=True):
    """The first page of something in a repository."""

    repository: Repository


def first_page(kind: str, found: Repository, wishes: Wishes, affinity: str) -> JobSpec:
    """The job that begins a list of a repository."""
    state = OfRepository(repository=found, full=wishes.full, since=wishes.since)
    return JobSpec(kind=kind, resource=found.resource, params=state.params, affinity=affinity)


def repository_jobs(found: Repository, include: frozenset[str], wishes: Wishes, affinity: str) -> list[JobSpec]:
    """Everything that is collected of a repository. One without issues is not asked for them."""
    wanted = [kind for kind in kinds.OF_REPOSITORIES if kind in include]
    if not found.has_issues and kinds.REPO_ISSUES in wanted:
        wanted.remove(kinds.REPO_ISSUES)
    return [first_page(kind, found, wishes, affinity) for kind in wanted]
