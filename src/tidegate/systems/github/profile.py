"""Collects the profile of a user or an organization.

An account can change its login, after which the old login does not exist. The number of the account stays; the previous
run stored it, so one more call finds the current login.
"""

import msgspec

from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import kinds
from tidegate.systems.github.items import document
from tidegate.systems.github.limits import explain
from tidegate.systems.github.requests import GithubCall
from tidegate.systems.github.states import RunOptions, account_replaced

_BY_NUMBER = "by number"
_LONGEST_SHOWN = 40


class ProfileState(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The profile to request."""

    login: str
    number: int | None = None
    """The number of the account, once its login does not exist any more."""
    is_organization: bool = False


class _ProfileAccount(msgspec.Struct):
    id: int
    login: str
    updated_at: str | None = None


def ask(task: Task) -> GithubCall:
    """The request; it costs nothing if the profile is unchanged."""
    state = ProfileState.of(task)
    many, one = ("orgs", "organizations") if state.is_organization else ("users", "user")
    if state.number is not None:
        return GithubCall(path=f"/{one}/{state.number}")
    return GithubCall(path=f"/{many}/{state.login}", etag=None if state.full else task.etag)


def read(task: Task, answer: Answer, _following: str | None) -> Reading:
    """Read the profile, or report what happened to the login."""
    state, found = ProfileState.of(task), msgspec.json.decode(answer.body, type=_ProfileAccount)
    former = str(state.number) if state.number is not None else task.cursor.cursor if task.cursor else None
    is_same = former in (None, str(found.id))
    # Before anything is stored: the answer is about another login.
    if found.login.lower() != state.login:
        if former == str(found.id):
            name = f"org:{found.login}" if state.is_organization else found.login
            reason = f"{state.login} is now called {found.login}: collect {name} from now on"
            return Reading(verdict=Verdict.GONE, reason=reason)
        # Not the account that was asked for: a proxy or cache mixed up two answers.
        reason = f"asked for the profile of {state.login}, and got that of {found.login[:_LONGEST_SHOWN]}"
        return Reading(verdict=Verdict.RETRY, reason=reason)
    if not is_same and not state.full:
        return account_replaced(state.login, former or "", found.id)
    kind = kinds.ORGANIZATION if state.is_organization else kinds.USER
    profile = document(task, kind, str(found.id), msgspec.Raw(answer.body), version=found.updated_at)
    cursor = Cursor(cursor=str(found.id), etag=answer.headers.get("ETag"), credential=task.credential)
    return Reading(
        documents=[profile],
        # A full run accepts another account under the login; documents of the former one are gone.
        completed=[] if is_same else [task.listing(kind)],
        # A request by number has another address, so its ETag must not be used for the login.
        cursor=None if state.number is not None else cursor,
    )


def unchanged(_task: Task, _answer: Answer) -> Reading:
    """Handle a 304: the profile is unchanged."""
    return Reading()


def refused(task: Task, answer: Answer) -> Reading | None:
    """Handle a 404: no account has this login. The account that had it in the last run is requested by its number."""
    state, last = ProfileState.of(task), task.cursor
    if answer.status != 404 or state.number is not None:
        return None
    if last is None or last.cursor is None:
        what = "organization" if state.is_organization else "user"
        return Reading(
            verdict=Verdict.GONE, reason=f"{explain(answer)}: GitHub has no {what} {state.login!r}; check the spelling"
        )
    by_number = msgspec.structs.replace(state, number=int(last.cursor))
    return Reading(
        follow_ups=[
            JobSpec(
                kind=task.spec.kind,
                resource=task.spec.resource,
                page=_BY_NUMBER,
                params=by_number.params,
                priority=task.spec.priority,
                affinity=task.credential,
                owner=task.spec.owner,
            )
        ]
    )
