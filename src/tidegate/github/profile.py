"""Who a user is."""

import msgspec

from tidegate.collect.source import Cursor, Reading, Task
from tidegate.github import items, kinds
from tidegate.github.requests import Call
from tidegate.github.states import Wishes
from tidegate.upstream import Answer


class ProfileState(Wishes, frozen=True, kw_only=True, omit_defaults=True):
    """Whose profile."""

    login: str


def ask(task: Task) -> Call:
    """The call; it costs nothing where the profile is the same."""
    state = ProfileState.of(task)
    return Call(path=f"/users/{state.login}", etag=None if state.full else task.etag)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """The profile."""
    _, documents = items.numbered(task, kinds.USER, [msgspec.Raw(answer.body)])
    return Reading(documents=documents, cursor=Cursor(etag=answer.headers.get("ETag"), credential=task.credential))


def unchanged(_task: Task) -> Reading:
    """304: the same as before."""
    return Reading()


def refused(_task: Task, _answer: Answer) -> Reading | None:
    """Nothing special."""
    return None
