"""The plan of a collection: expected calls and end per user, also as text. Estimates are marked as such."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from tidegate.cli.wording import clock, counted, listed, number, span
from tidegate.engine.commands.permits import (
    Forecast,
    Permits,
    Supply,
    forecast,
    permit_label,
    permit_text,
    wait_reasons,
)
from tidegate.engine.commands.run_text import labelled, subject_word
from tidegate.engine.reports.history import ReadResources, RunAverages
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject
from tidegate.engine.source_plugin import ResourceUnit

ASSUMED_CALLS = 100
"""Assumed calls for a new user if no user was collected before: about thirty repositories."""


class RunStart(StrEnum):
    """How the run of a user starts."""

    NEW = "new"  # the first run of the user
    RESUMED = "resumed"  # continues an active run
    INCREMENTAL = "incremental"  # reads the changes since earlier runs
    FULL = "full"  # reads everything again


class UserPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one user."""

    login: str
    pool: str
    mode: RunStart
    run_id: int | None = None
    """The active run that is continued."""
    last_run_id: int | None = None
    last_completed_at: datetime | None = None
    jobs: int
    """Known jobs. A job can add others, for the next page of a list or for a repository."""
    jobs_done: int = 0
    calls: int
    """Expected calls from now on."""
    free_calls: int = 0
    """How many of `calls` cost nothing if nothing changed."""
    is_estimate: bool
    """Whether `calls` is an estimate."""
    resources: int = 0
    """Repositories, or what else the source counts, that earlier runs have read; 0 if unknown."""
    has_other_options: bool = False
    """Whether the continued run has other options than this command. It is completed with its own."""


class UserHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about users, by user id."""

    active: Mapping[str, Run]
    last: Mapping[str, Run]
    marks: Mapping[str, Sequence[ReadResources]]
    typical: RunAverages
    resources: Mapping[str, int] = {}
    """What the source counts beside subjects, such as repositories."""

    @property
    def usual_calls(self) -> int:
        """Expected calls for a new user."""
        return round(self.typical.calls) if self.typical.users else ASSUMED_CALLS


class CollectionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a collection command."""

    made_at: datetime
    users: list[UserPlan]
    calls: int
    """Expected calls of all users."""
    free_calls: int
    """How many of `calls` cost nothing if nothing changed."""
    permits: list[Permits]
    usual_calls: int
    users_before: int
    """Number of users from which `usual_calls` is computed; 0 if it is `ASSUMED_CALLS`."""
    ends_at: datetime | None
    """Estimated end if no further jobs are found; None if unknown."""
    windows: int
    """How many further windows are needed."""
    unit: ResourceUnit | None
    """What `resources` counts."""
    waits: int
    """How often all credentials are exhausted until the next window opens."""
    first_wait_until: datetime | None


def plan_user(
    subject: Subject,
    pool: str,
    known: UserHistory,
    *,
    include: frozenset[str] | None,
    first_jobs: int,
    credentials: frozenset[str],
) -> UserPlan:
    """Plan the run of one user that `credentials` serve; `include` are the kinds of jobs, None for all."""
    if (run := known.active.get(subject.user_id)) is not None:
        return _going_on(subject, run, known)
    last, is_full = known.last.get(subject.user_id), bool(subject.options.get("full"))
    marks = [one for one in known.marks.get(subject.user_id, ()) if include is None or one.kind in include]
    asked = sum(one.resources for one in marks)
    calls, mode = asked, RunStart.INCREMENTAL
    free = sum(one.resources for one in marks if one.credential in credentials)
    if not marks or is_full:
        mode = RunStart.FULL if marks else RunStart.NEW
        calls, free = max(asked, known.usual_calls, first_jobs), 0
    return UserPlan(
        login=subject.login,
        pool=pool,
        mode=mode,
        last_run_id=None if last is None else last.id,
        last_completed_at=None if last is None else last.completed_at,
        jobs=max(asked, first_jobs),
        calls=calls,
        free_calls=free,
        resources=known.resources.get(subject.user_id, 0),
        is_estimate=mode is not RunStart.INCREMENTAL,
    )


def _going_on(subject: Subject, run: Run, known: UserHistory) -> UserPlan:
    left = run.total_jobs - run.ended_jobs
    is_planning = run.status == "planning"
    return UserPlan(
        login=subject.login,
        pool=run.pool,
        mode=RunStart.RESUMED,
        run_id=run.id,
        jobs=run.total_jobs,
        jobs_done=run.ended_jobs,
        calls=max(left, known.usual_calls - run.calls) if is_planning else left,
        is_estimate=is_planning,
        has_other_options=dict(run.options) != dict(subject.options),
    )


def forecast_plan(users: Sequence[UserPlan], supplies: Mapping[str, Sequence[Supply]]) -> Forecast | None:
    """Estimate when the slowest pool has served its users. None if it is unknown for one of them."""
    ends: list[Forecast] = []
    for pool, supply in supplies.items():
        own = [user for user in users if user.pool == pool]
        calls, paid = sum(user.calls for user in own), sum(user.calls - user.free_calls for user in own)
        # Free calls take time too: they are limited by the rate, not by the quota.
        end, all_free = forecast(paid, supply), forecast(calls, [_unlimited(one) for one in supply])
        if end is None or all_free is None:
            return None
        ends.append(msgspec.structs.replace(end, seconds=max(end.seconds, all_free.seconds)))
    return max(ends, key=lambda end: end.seconds, default=None)


def _unlimited(supply: Supply) -> Supply:
    return msgspec.structs.replace(supply, now=sys.maxsize)


def assemble_plan(
    users: Sequence[UserPlan],
    known: UserHistory,
    permits: Sequence[Permits],
    end: Forecast | None,
    now: datetime,
    *,
    unit: ResourceUnit | None = None,
) -> CollectionPlan:
    """Assemble the plan of all users; `unit` is what the source counts beside them."""
    first_wait_s = None if end is None else end.first_wait_s
    return CollectionPlan(
        made_at=now,
        users=list(users),
        calls=sum(user.calls for user in users),
        free_calls=sum(user.free_calls for user in users),
        permits=list(permits),
        usual_calls=known.usual_calls,
        users_before=known.typical.users,
        ends_at=None if end is None else now + timedelta(seconds=end.seconds),
        windows=0 if end is None else end.windows,
        unit=unit,
        waits=0 if end is None else end.waits,
        first_wait_until=None if first_wait_s is None else now + timedelta(seconds=first_wait_s),
    )


_MOST_USERS = 12
_MOST_CREDENTIALS = 8
_MOST_NAMES = 5


def plan_lines(plan: CollectionPlan) -> Iterator[str]:
    """The lines of a plan, with a label per section."""
    yield from labelled("plan", [*_users(plan)])
    yield from labelled("calls", [*_calls(plan)])
    yield from labelled("permits", [*_permits(plan)])
    yield from labelled("end", [_end(plan)])


def _users(plan: CollectionPlan) -> Iterator[str]:
    """New users in one line, the others one by one."""
    if len(plan.users) > _MOST_USERS:
        modes = Counter(user.mode for user in plan.users)
        parts = ", ".join(f"{number(modes[mode])} {mode}" for mode in RunStart if modes[mode])
        yield f"{counted(len(plan.users), _word(plan))}: {parts}"
    new = [user for user in plan.users if user.mode is RunStart.NEW]
    if new:
        names, each = listed((user.login for user in new), _MOST_NAMES), " each" if len(new) > 1 else ""
        least, most = min(user.jobs for user in new), max(user.jobs for user in new)
        calls = counted(most, "call") if least == most else f"{number(least)} to {number(most)} calls"
        yield f"{names}: {RunStart.NEW}, {calls}{each} at first; more are known after the repositories are listed"
    others = [user for user in plan.users if user.mode is not RunStart.NEW]
    width = max((len(user.login) for user in others[:_MOST_USERS]), default=0)
    for user in others[:_MOST_USERS]:
        yield f"{user.login:{width}}  {user.mode}: {_user(user, plan)}"
    if len(others) > _MOST_USERS:
        yield f"… and {number(len(others) - _MOST_USERS)} more"
    different = [user.login for user in plan.users if user.has_other_options]
    if different:
        yield f"{listed(different)}: continued with the options of the active run; run the command again afterwards"


def _user(user: UserPlan, plan: CollectionPlan) -> str:
    if user.mode is RunStart.RESUMED:
        done = f"run {user.run_id}, {number(user.jobs_done)} of {counted(user.jobs, 'known page')} done"
        return f"{done}, repositories are still being found" if user.is_estimate else done
    several = "" if plan.unit is None or not user.resources else f"{_resources(user.resources, plan.unit)}, "
    if user.mode is RunStart.FULL:
        return f"{several}about {counted(user.calls, 'call')}"
    when = "" if user.last_completed_at is None else f" of {clock(user.last_completed_at, plan.made_at)}"
    last = "the last run" if user.last_run_id is None else f"run {user.last_run_id}{when}"
    return f"changes since {last}, {several}{counted(user.calls, 'call')}"


def _resources(count: int, unit: ResourceUnit) -> str:
    return counted(count, unit.one, unit.many)


def _word(plan: CollectionPlan) -> str:
    return subject_word(user.login for user in plan.users)


def _calls(plan: CollectionPlan) -> Iterator[str]:
    guessed = [user for user in plan.users if user.is_estimate]
    free = f", {number(plan.free_calls)} of them free if nothing changed; changed items need further calls"
    yield f"{'about ' if guessed else ''}{number(plan.calls)}{free if plan.free_calls else ''}"
    if any(user.mode is RunStart.NEW for user in guessed):
        basis = (
            f"the average of the {counted(plan.users_before, _word(plan))} collected before"
            if plan.users_before
            else "no run has been completed yet that would show it"
        )
        yield f"{number(plan.usual_calls)} are assumed for each new {_word(plan)}: {basis}"


def _permits(plan: CollectionPlan) -> Iterator[str]:
    for one in plan.permits[:_MOST_CREDENTIALS]:
        yield f"{permit_label(one)}: {permit_text(one, plan.made_at)}"
    if len(plan.permits) > _MOST_CREDENTIALS:
        yield f"… and {number(len(plan.permits) - _MOST_CREDENTIALS)} more"
    yield from wait_reasons(plan.permits, plan.made_at)


def _end(plan: CollectionPlan) -> str:
    if plan.ends_at is None:
        return "not known before the first call"
    about = f"about {clock(plan.ends_at, plan.made_at)}, in {span((plan.ends_at - plan.made_at).total_seconds())}"
    if plan.first_wait_until is None:
        return f"{about}: " + ("new windows open in time" if plan.windows else "the permits left suffice")
    opens = clock(plan.first_wait_until, plan.made_at)
    times = "once" if plan.waits == 1 else f"{number(plan.waits)} times, first"
    return f"{about}: the permits left do not suffice, waits {times} for a window that opens {opens}"
