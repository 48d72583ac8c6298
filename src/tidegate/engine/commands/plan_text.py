"""The plan, in words."""

from collections import Counter
from collections.abc import Iterator

from tidegate.cli.wording import clock, counted, listed, number, span
from tidegate.engine.commands.permits import named, told, waits
from tidegate.engine.commands.plan import CollectionPlan, RunStart, UserPlan
from tidegate.engine.commands.run_text import labelled

_MOST_USERS = 12
_MOST_CREDENTIALS = 8
_MOST_NAMES = 5


def plan_lines(plan: CollectionPlan) -> Iterator[str]:
    """One fact on each line, under a word that says what it is about."""
    yield from labelled("plan", [*_users(plan)])
    yield from labelled("calls", [*_calls(plan)])
    yield from labelled("permits", [*_permits(plan)])
    yield from labelled("end", [_end(plan)])


def _users(plan: CollectionPlan) -> Iterator[str]:
    """Those who are alike together, the others one by one."""
    if len(plan.users) > _MOST_USERS:
        ways = Counter(user.way for user in plan.users)
        parts = ", ".join(f"{number(ways[way])} {way}" for way in RunStart if ways[way])
        yield f"{counted(len(plan.users), 'user')}: {parts}"
    new = [user for user in plan.users if user.way is RunStart.NEW]
    if new:
        names, each = listed((user.login for user in new), _MOST_NAMES), " each" if len(new) > 1 else ""
        first = f"{counted(new[0].jobs, 'call')}{each} to begin with"
        yield f"{names}: {RunStart.NEW}, {first}; the rest is known when the repositories are"
    others = [user for user in plan.users if user.way is not RunStart.NEW]
    width = max((len(user.login) for user in others[:_MOST_USERS]), default=0)
    for user in others[:_MOST_USERS]:
        yield f"{user.login:{width}}  {user.way}: {_user(user, plan)}"
    if len(others) > _MOST_USERS:
        yield f"… and {number(len(others) - _MOST_USERS)} more"
    other_wishes = [user.login for user in plan.users if user.other_wishes]
    if other_wishes:
        yield f"{listed(other_wishes)}: begun with other options, and finished with them; then run the command again"


def _user(user: UserPlan, plan: CollectionPlan) -> str:
    if user.way is RunStart.RESUMED:
        done = f"run {user.run_id}, {number(user.jobs_done)} of {counted(user.jobs, 'page')} known so far are done"
        return f"{done}, repositories are still being found" if user.is_estimate else done
    if user.way is RunStart.FULL:
        return f"about {counted(user.calls, 'call')}"
    when = "" if user.last_completed_at is None else f" of {clock(user.last_completed_at, plan.made_at)}"
    last = "the last run" if user.last_run_id is None else f"run {user.last_run_id}{when}"
    return f"asks what changed since {last}, {counted(user.calls, 'call')}"


def _calls(plan: CollectionPlan) -> Iterator[str]:
    guessed = [user for user in plan.users if user.is_estimate]
    free = f", {number(plan.free_calls)} of them free where nothing changed; what changed is read on top"
    yield f"{'about ' if guessed else ''}{number(plan.calls)}{free if plan.free_calls else ''}"
    if any(user.way is RunStart.NEW for user in guessed):
        basis = (
            f"what the {counted(plan.users_before, 'user')} collected before took on average"
            if plan.users_before
            else "some thirty repositories; three calls for each, and one more for every hundred items"
        )
        yield f"for each new user {number(plan.usual_calls)} are assumed: {basis}"


def _permits(plan: CollectionPlan) -> Iterator[str]:
    for one in plan.permits[:_MOST_CREDENTIALS]:
        yield f"{named(one)}: {told(one, plan.made_at)}"
    if len(plan.permits) > _MOST_CREDENTIALS:
        yield f"… and {number(len(plan.permits) - _MOST_CREDENTIALS)} more"
    yield from waits(plan.permits, plan.made_at)


def _end(plan: CollectionPlan) -> str:
    if plan.ends_at is None:
        return "not known: what may be spent is told by the first call"
    about = f"about {clock(plan.ends_at, plan.made_at)}, in {span((plan.ends_at - plan.made_at).total_seconds())}"
    if plan.first_wait_until is None:
        return f"{about}: " + ("new windows open in time" if plan.windows else "the permits left suffice")
    opens = clock(plan.first_wait_until, plan.made_at)
    times = "once" if plan.waits == 1 else f"{number(plan.waits)} times, first"
    return f"{about}: the permits left do not suffice, so it waits {times} for a window that opens {opens}"
