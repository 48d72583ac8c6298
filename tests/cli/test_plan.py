"""What is going to happen, told before it does: for new users, for runs that go on, for those who were here before."""

import re
from datetime import timedelta
from typing import Any

import msgspec

from tests.cli.views import NOW, permits, run
from tidegate.engine.commands.permits import Forecast, Supply
from tidegate.engine.commands.plan import (
    ASSUMED_CALLS,
    CollectionPlan,
    RunStart,
    UserHistory,
    UserPlan,
    assemble_plan,
    forecast_plan,
    plan_lines,
    plan_user,
)
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.history import ReadResources, RunAverages
from tidegate.engine.source import Subject
from tidegate.systems.github import ESSENTIAL
from tidegate.systems.github.plugin import GithubPlugin

NOTHING = UserHistory(active={}, last={}, marks={}, typical=RunAverages(users=0, calls=0))
LAST = run(12, status=RunState.COMPLETED, completed_at=NOW - timedelta(minutes=3))
MARKS = [
    ReadResources(kind="REPO_ISSUES", resources=30, credential="user-1"),
    ReadResources(kind="REPO_COMMITS", resources=10, credential="user-2"),
    ReadResources(kind="REPO_REVIEWS", resources=99, credential=None),
]
SUPPLY = Supply(now=100, per_window=100, opens_in_s=60, window_s=3_600, per_minute=6_000, concurrency=5)


def planned(known: UserHistory = NOTHING, **options: Any) -> UserPlan:
    return plan_user(
        Subject(user_id="octocat", login="octocat", options=options),
        "github",
        known,
        include=ESSENTIAL,
        first_jobs=3,
        credentials=frozenset({"user-1"}),
    )


def told(*users: UserPlan, known: UserHistory = NOTHING, end: Forecast | None = None) -> list[str]:
    return list(plan_lines(assemble_plan(users, known, [permits()], end, NOW)))


def test_a_new_user_has_three_known_calls_and_an_estimate_marked_as_such():
    user = planned()
    assert (user.mode, user.jobs, user.calls, user.is_estimate) == (RunStart.NEW, 3, ASSUMED_CALLS, True)
    lines = told(user)
    assert lines[0] == "plan       octocat: new, 3 calls at first; more are known after the repositories are listed"
    assert lines[1] == "calls      about 100"
    assert lines[2].strip().startswith("100 are assumed for each new user: no run has been completed yet")


def test_previous_runs_of_users_improve_the_estimate():
    known = msgspec.structs.replace(NOTHING, typical=RunAverages(users=8, calls=46.4))
    user = planned(known)
    assert user.calls == 46
    assert told(user, known=known)[2].strip() == (
        "46 are assumed for each new user: the average of the 8 users collected before"
    )


def test_a_known_user_is_asked_for_changes_and_only_the_same_credential_uses_etags():
    known = msgspec.structs.replace(NOTHING, last={"octocat": LAST}, marks={"octocat": MARKS})
    user = planned(known)
    assert (user.mode, user.calls, user.free_calls, user.is_estimate) == (RunStart.INCREMENTAL, 40, 30, False)
    lines = told(user, known=known)
    assert re.fullmatch(r"plan       octocat  incremental: changes since run 12 of \S+, 40 calls", lines[0])
    assert lines[1] == "calls      40, 30 of them free if nothing changed; changed items need further calls"


def test_a_full_run_costs_all_calls_again():
    known = msgspec.structs.replace(NOTHING, last={"octocat": LAST}, marks={"octocat": MARKS})
    user = planned(known, full=True)
    assert (user.mode, user.calls, user.free_calls) == (RunStart.FULL, 100, 0)


def test_an_unfinished_run_continues_with_its_own_options():
    known = msgspec.structs.replace(NOTHING, active={"octocat": run(15)})
    user = planned(known)
    assert (user.mode, user.run_id, user.jobs, user.jobs_done, user.calls) == (RunStart.RESUMED, 15, 10, 4, 6)
    assert told(user)[0] == "plan       octocat  resumed: run 15, 4 of 10 known pages done"

    other = planned(known, since="2026-01-01T00:00:00Z")
    assert told(other)[1].strip() == (
        "octocat: continued with the options of the active run; run the command again afterwards"
    )


def test_a_run_in_planning_may_cost_more_than_is_known():
    known = msgspec.structs.replace(NOTHING, active={"octocat": run(15, status=RunState.PLANNING)})
    user = planned(known)
    assert (user.calls, user.is_estimate) == (ASSUMED_CALLS - 4, True)
    assert told(user)[0].endswith("done, repositories are still being found")


def test_the_estimated_end_states_its_assumptions():
    user = planned()
    assert told(user)[-1] == "end        not known before the first call"
    assert re.fullmatch(
        r"end        about \S+, in 5 s: the permits left suffice", told(user, end=Forecast(seconds=5))[-1]
    )
    later = told(user, end=Forecast(seconds=5, windows=2))[-1]
    assert later.endswith("in 5 s: new windows open in time")
    waits = told(user, end=Forecast(seconds=3_700, windows=2, waits=2, first_wait_s=130))[-1]
    assert re.search(r"do not suffice, waits 2 times, first for a window that opens \d\d:02:10$", waits)


def test_the_end_is_that_of_the_slowest_pool_and_free_calls_need_no_permit():
    paid = msgspec.structs.replace(planned(), calls=150)
    free = msgspec.structs.replace(paid, free_calls=150)
    assert forecast_plan([paid], {"github": [SUPPLY]}) == Forecast(seconds=65, windows=1, waits=1, first_wait_s=60)
    assert forecast_plan([free], {"github": [SUPPLY]}) == Forecast(seconds=15)
    own = msgspec.structs.replace(free, pool="own")
    assert forecast_plan([own, paid], {"github": [SUPPLY], "own": [SUPPLY]}) == forecast_plan(
        [paid], {"github": [SUPPLY]}
    )
    assert forecast_plan([paid], {"github": []}) is None


def test_many_users_are_counted_and_only_a_few_are_named():
    new = [msgspec.structs.replace(planned(), login=f"user-{n}") for n in range(900)]
    known = msgspec.structs.replace(NOTHING, active={"octocat": run(15)})
    others = [msgspec.structs.replace(planned(known), login=f"old-{n}") for n in range(100)]
    lines = told(*new, *others)
    assert lines[0] == "plan       1,000 users: 900 new, 100 resumed"
    assert len(lines) < 25
    assert "user-0, user-1, user-2, user-3, user-4 and 895 more: new, 3 calls each" in lines[1]


def test_subjects_with_different_first_calls_are_told_apart_and_repositories_are_counted():
    known = msgspec.structs.replace(
        NOTHING, marks={"octocat": MARKS}, last={"octocat": LAST}, resources={"octocat": 30}
    )
    new = [
        msgspec.structs.replace(planned(), login=login, jobs=jobs) for login, jobs in (("org:a", 4), ("repo:b/c", 1))
    ]
    plan = assemble_plan([*new, planned(known)], known, [permits()], None, NOW, unit=GithubPlugin.unit)
    lines = list(plan_lines(plan))
    assert "org:a, repo:b/c: new, 1 to 4 calls each at first" in lines[0]
    assert "30 repositories, 40 calls" in lines[1]
    assert "assumed for each new subject" in "".join(lines)


def test_a_plan_can_be_written_as_json():
    plan: CollectionPlan = assemble_plan([planned()], NOTHING, [permits()], Forecast(seconds=5), NOW)
    assert msgspec.json.decode(msgspec.json.encode(plan))["calls"] == 100
