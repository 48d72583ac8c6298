"""What is going to happen, as far as it is known, and what is not known yet."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from tidegate.engine.commands.forecast import Forecast, Supply, forecast
from tidegate.engine.commands.permits import Permits
from tidegate.engine.reports.history import ReadResources, RunAverages
from tidegate.engine.runs import Run
from tidegate.engine.source import Subject

ASSUMED_CALLS = 100
"""For a user of whom nothing is known, where nobody was collected before: some thirty repositories."""


class RunStart(StrEnum):
    """How a user's run begins."""

    NEW = "new"  # nothing is known of the user
    RESUMED = "resumed"  # a run that was begun before is not over
    INCREMENTAL = "incremental"  # what earlier runs left is asked for changes
    FULL = "full"  # everything is read again, although earlier runs left something


class UserPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is going to happen for one user."""

    login: str
    pool: str
    way: RunStart
    run_id: int | None = None
    """The run that goes on."""
    last_run_id: int | None = None
    last_completed_at: datetime | None = None
    jobs: int
    """Calls that are known of; one brings others, where a list goes on or a repository is found."""
    jobs_done: int = 0
    calls: int
    """Calls that are expected from now on."""
    free_calls: int = 0
    """Of these, calls that cost nothing where nothing changed."""
    is_estimate: bool
    """Whether `calls` is a guess, because nothing better is known."""
    other_wishes: bool = False
    """The run that goes on was begun with other options, and is finished with them."""


class UserHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What SQL knows of users, by user."""

    active: Mapping[str, Run]
    last: Mapping[str, Run]
    marks: Mapping[str, Sequence[ReadResources]]
    typical: RunAverages

    @property
    def usual_calls(self) -> int:
        """What a user takes of whom nothing is known."""
        return round(self.typical.calls) if self.typical.users else ASSUMED_CALLS


class CollectionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is going to happen."""

    made_at: datetime
    users: list[UserPlan]
    calls: int
    """That are expected of all."""
    free_calls: int
    """Of these, calls that cost nothing where nothing changed."""
    permits: list[Permits]
    usual_calls: int
    users_before: int
    """Whose runs tell what is usual; 0: it is an assumption."""
    ends_at: datetime | None
    """When it is over, if nothing else is found; None: that cannot be told."""
    windows: int
    """How many windows have to open for it."""
    waits: int
    """How often nothing can be done before the next one does."""
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
    """The plan for one user that `credentials` serve; `include` are the kinds of jobs, None for all."""
    if (run := known.active.get(subject.user_id)) is not None:
        return _going_on(subject, run, known)
    last, is_full = known.last.get(subject.user_id), bool(subject.options.get("full"))
    marks = [one for one in known.marks.get(subject.user_id, ()) if include is None or one.kind in include]
    asked = sum(one.resources for one in marks)
    calls, free, way = asked, sum(one.resources for one in marks if one.credential in credentials), RunStart.INCREMENTAL
    if not marks or is_full:
        way = RunStart.FULL if marks else RunStart.NEW
        calls, free = max(asked, known.usual_calls, first_jobs), 0
    return UserPlan(
        login=subject.login,
        pool=pool,
        way=way,
        last_run_id=None if last is None else last.id,
        last_completed_at=None if last is None else last.completed_at,
        jobs=max(asked, first_jobs),
        calls=calls,
        free_calls=free,
        is_estimate=way is not RunStart.INCREMENTAL,
    )


def _going_on(subject: Subject, run: Run, known: UserHistory) -> UserPlan:
    left = run.total_jobs - run.ended_jobs
    is_planning = run.status == "planning"
    return UserPlan(
        login=subject.login,
        pool=run.pool,
        way=RunStart.RESUMED,
        run_id=run.id,
        jobs=run.total_jobs,
        jobs_done=run.ended_jobs,
        calls=max(left, known.usual_calls - run.calls) if is_planning else left,
        is_estimate=is_planning,
        other_wishes=dict(run.options) != dict(subject.options),
    )


def foresee(users: Sequence[UserPlan], supplies: Mapping[str, Sequence[Supply]]) -> Forecast | None:
    """When the last pool is done with its users; None where one of them cannot be told."""
    ends: list[Forecast] = []
    for pool, supply in supplies.items():
        own = [user for user in users if user.pool == pool]
        calls, paid = sum(user.calls for user in own), sum(user.calls - user.free_calls for user in own)
        # What is free takes its time all the same, and so waits for nothing but the pace.
        end, all_free = forecast(paid, supply), forecast(calls, [_unlimited(one) for one in supply])
        if end is None or all_free is None:
            return None
        ends.append(msgspec.structs.replace(end, seconds=max(end.seconds, all_free.seconds)))
    return max(ends, key=lambda end: end.seconds, default=None)


def _unlimited(supply: Supply) -> Supply:
    return msgspec.structs.replace(supply, now=sys.maxsize)


def put_together(
    users: Sequence[UserPlan], known: UserHistory, permits: Sequence[Permits], end: Forecast | None, now: datetime
) -> CollectionPlan:
    """The whole plan."""
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
        waits=0 if end is None else end.waits,
        first_wait_until=None if first_wait_s is None else now + timedelta(seconds=first_wait_s),
    )
