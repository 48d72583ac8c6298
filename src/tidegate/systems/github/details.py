"""Lists of single items: the jobs of a workflow run, the files of a commit, the timeline of an issue, the commits of a
branch. One call or more for each item that the list above it shows as new or changed; see `kinds`.

The list above decides what is new, so an unchanged repository costs nothing here. Items that were collected before such
a kind was selected are read by a full run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from tidegate.core.errors import InvalidArgument
from tidegate.engine.items import read_items
from tidegate.engine.source import JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.storage.documents import Document
from tidegate.systems.github import batches, items, kinds
from tidegate.systems.github.kinds import Kind, ListOrder
from tidegate.systems.github.limits import explain
from tidegate.systems.github.requests import PER_PAGE, GithubCall
from tidegate.systems.github.states import ListedRepository, State

_ABSENT = frozenset({404, 409, 410, 422})
"""The item was deleted after its list was read, or is too large to be computed."""


class DetailState(State, frozen=True, kw_only=True, omit_defaults=True):
    """One page of the details of one item."""

    repository: ListedRepository
    path: str
    item: str
    """What identifies the item in the repository."""
    version: str = ""
    """When the item changed. One that changes again during the run is read again."""
    number: int = 1
    fields: dict[str, str | int] = msgspec.field(default_factory=dict[str, str | int])
    """Fields of the item that its details lack; they become part of each document."""


def jobs_of(
    task: Task, repository: ListedRepository | None, wanted: Iterable[str], found: Sequence[Mapping[str, Any]]
) -> list[JobSpec]:
    """The jobs that read the details of new or changed items, for those `wanted` kinds that belong to this list."""
    if repository is None:
        return []
    jobs = list[JobSpec]()
    for kind in wanted:
        declared = kinds.REGISTRY[kind]
        if declared.parent != task.spec.kind:
            continue
        if declared.order is ListOrder.BATCHES:
            jobs += batches.jobs_of(task, kind, repository, found)
        else:
            each = (_first_job(task, kind, repository, item) for item in found)
            jobs += [job for job in each if job is not None]
    return jobs


def are_wanted(kind: str, wanted: Iterable[str]) -> bool:
    """Whether a run collects details of the items of this list."""
    return any(kinds.REGISTRY[each].parent == kind for each in wanted)


def ask(task: Task) -> GithubCall:
    """Build the call for a page."""
    return GithubCall(path=DetailState.of(task).path)


def read(task: Task, answer: Answer, following: str | None) -> Reading:
    """Read a page of details of one item; `following` is the address of the next page."""
    state, declared = DetailState.of(task), kinds.REGISTRY[task.spec.kind]
    if declared.is_single:
        body = msgspec.json.decode(answer.body, type=dict[str, Any])
        return Reading(documents=[_document(task, state, declared, body)])
    content = items.listed(answer, declared.items_key)
    page = read_items(content, dict[str, Any], lambda item, _raw: _document(task, state, declared, item))
    onwards = [] if following is None else [_next(task, state, following)]
    return Reading(documents=page.documents, skipped=page.skipped, follow_ups=onwards)


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """No ETag is sent, so none can match."""
    return Reading(verdict=Verdict.RETRY, reason="304 to a request without an ETag")


def refused(task: Task, answer: Answer) -> Reading | None:
    """The item is gone or has no details; the next run of its list marks it as gone."""
    if answer.status not in _ABSENT:
        return None
    return Reading(skipped=[f"{kinds.NAMES[task.spec.kind]} of {DetailState.of(task).item}: {explain(answer)}"])


def _first_job(task: Task, kind: str, repository: ListedRepository, item: Mapping[str, Any]) -> JobSpec | None:
    """Return the job that reads the details of an item; None if the item has none."""
    declared = kinds.REGISTRY[kind]
    values = {"default_branch": repository.default_branch, **{name: _at(item, path) for name, path in _VALUES.items()}}
    key = values[declared.item or "id"]
    # Commits of the default branch are a list of their own.
    if key is None or (kind == kinds.REPO_BRANCH_COMMITS and key == repository.default_branch):
        return None
    path = (declared.path or "").format_map({name: quote(str(value), safe="") for name, value in values.items()})
    query = "" if declared.is_single else f"?per_page={PER_PAGE}"
    state = DetailState(
        repository=repository,
        path=f"{repository.path}/{path}{query}",
        item=str(key),
        version=str(item.get("updated_at") or ""),
        fields={name: values[value] for name, value in declared.fields.items()},
    )
    return _job(task, kind, state)


_VALUES: Mapping[str, tuple[str, ...]] = {
    "id": ("id",),
    "number": ("number",),
    "sha": ("sha",),
    "name": ("name",),
    "head": ("commit", "sha"),
}
"""What paths and fields of details can refer to, and where it is in an item."""


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def _document(task: Task, state: DetailState, declared: Kind, item: dict[str, Any]) -> Document:
    """Build a document. Its id contains the item if details of different items can have the same id."""
    # The first field that is present identifies the item: events of a timeline do not all have a number.
    named = next((found for name in declared.identity if (found := item.get(name)) is not None), None)
    if isinstance(named, bool) or not isinstance(named, int | str):
        raise InvalidArgument(" or ".join(declared.identity), named, "must be a number or a text")
    name = str(named)
    if not declared.is_unique:
        scope = (str(state.repository.id), *([] if declared.is_single else [state.item]))
        name = ":".join((*scope, name))
    version = item.get("updated_at")
    return items.document(
        task,
        kinds.DOCUMENTS[task.spec.kind],
        items.plain_id(name),
        {**item, **state.fields},
        version=version if isinstance(version, str) else None,
    )


def _next(task: Task, state: DetailState, path: str) -> JobSpec:
    return _job(task, task.spec.kind, msgspec.structs.replace(state, path=path, number=state.number + 1))


def _job(task: Task, kind: str, state: DetailState) -> JobSpec:
    # Part of the job's identity: an item that changes again during the run gets another job.
    version = f" of {state.version}" if state.version else ""
    page = f" page {state.number}" if state.number > 1 else ""
    return JobSpec(
        kind=kind,
        resource=task.spec.resource,
        page=f"{items.plain_id(state.item)}{version}{page}",
        params=state.params,
        priority=6,
        owner=task.spec.owner,
    )
