"""The plan of a collection as text."""

from collections import Counter
from collections.abc import Iterator

from tidegate.cli.wording import clock, counted, listed, number, span
from tidegate.engine.commands.permits import permit_label, permit_text, wait_reasons
from tidegate.engine.commands.plan import CollectionPlan, RunStart, UserPlan
from tidegate.engine.commands.run_text import labelled

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
        yield f"{counted(len(plan.users), 'user')}: {parts}"
    new = [user for user in plan.users if user.mode is RunStart.NEW]
    if new:
        names, each = listed((user.login for user in new), _MOST_NAMES), " each" if len(new) > 1 else ""
        first = f"{counted(new[0].jobs, 'call')}{each} at first"
        yield f"{names}: {RunStart.NEW}, {first}; more are known after the repositories are listed"
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
    if user.mode is RunStart.FULL:
        return f"about {counted(user.calls, 'call')}"
    when = "" if user.last_completed_at is None else f" of {clock(user.last_completed_at, plan.made_at)}"
    last = "the last run" if user.last_run_id is None else f"run {user.last_run_id}{when}"
    return f"changes since {last}, {counted(user.calls, 'call')}"


def _calls(plan: CollectionPlan) -> Iterator[str]:
    guessed = [user for user in plan.users if user.is_estimate]
    free = f", {number(plan.free_calls)} of them free if nothing changed; changed items need further calls"
    yield f"{'about ' if guessed else ''}{number(plan.calls)}{free if plan.free_calls else ''}"
    if any(user.mode is RunStart.NEW for user in guessed):
        basis = (
            f"the average of the {counted(plan.users_before, 'user')} collected before"
            if plan.users_before
            else "about thirty repositories with three calls each, and one more for every hundred items"
        )
        yield f"{number(plan.usual_calls)} are assumed for each new user: {basis}"


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
