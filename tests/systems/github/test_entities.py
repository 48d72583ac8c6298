"""The further lists of repositories and organizations: what is stored, and what each costs in counted calls."""

from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.answers import API, HELLO, answer, follow_up, link
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.lifecycle import RunState
from tidegate.engine.reports.progress import unavailable_of
from tidegate.engine.source import Cursor, JobSpec, Reading, Task, Verdict
from tidegate.systems.github import GithubSource, kinds, parse_subject
from tidegate.systems.github.kinds import REGISTRY, KindGroup, ListOrder
from tidegate_simulators.github import Sizes
from tidegate_simulators.github.extras import NAMES

LISTS = {kind: declared for kind, declared in REGISTRY.items() if declared.order in (ListOrder.PAGES, ListOrder.NEWEST)}
OF_REPOSITORY = {kind: declared for kind, declared in LISTS.items() if declared.is_in_repository}
SHOWN_BY = {name: declared for name in NAMES for declared in LISTS.values() if declared.name == name.replace("_", "-")}
LONG, PAGES = 250, 3
SOURCE = GithubSource(API, kinds.ALL)


def test_the_simulator_has_every_list_of_the_registry():
    assert {declared.name for declared in OF_REPOSITORY.values()} - {"code-frequency"} == {
        declared.name for declared in SHOWN_BY.values()
    }


@pytest.mark.parametrize("name", NAMES)
async def test_a_list_costs_its_pages_once_then_nothing_and_then_what_changed(
    tmp_path: Path, embedded_url: str, name: str
):
    declared = SHOWN_BY[name]
    shape: dict[str, Any] = {"repositories": 1, "extras": LONG, "sizes": Sizes(commits=3)}
    async with deployed(tmp_path, embedded_url, **shape, include=[declared.name]) as it:
        [login] = it.sim.world.logins()
        [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
        assert await _cost(it, login) == 2 + PAGES, "the profile, the list of repositories, and the pages"
        shown = it.sim.extras.listed(found, name)
        assert sorted(map(str, (await it.bodies(declared.document or "")).values())) == sorted(map(str, shown))
        assert len(shown) == LONG

        assert await _cost(it, login) == 0, "unchanged"

        it.sim.extras.add(found, name)
        changed = PAGES if name == "releases" else 1
        assert await _cost(it, login) == changed, "a new release comes first, and moves all others"
        assert len(await it.bodies(declared.document or "")) == LONG + 1

        number = it.sim.extras.of(found, name)[5].number
        it.sim.extras.remove(found, name, number)
        await it.collect(login, full=True)
        assert len(await it.bodies(declared.document or "")) == LONG, "a full run marks what is gone"


async def _cost(it: Deployment, login: str) -> int:
    before = it.sim.report()
    [run] = await it.collect(login)
    assert (run.failed_jobs, run.skipped_items) == (0, 0)
    return it.spent(before)["core"]


async def test_short_lists_show_deleted_items_immediately(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=1, include=["labels"]) as it:
        [login] = it.sim.world.logins()
        [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
        await it.collect(login)
        it.sim.extras.remove(found, "labels", 2)
        await it.collect(login)
        assert sorted(body["id"] for body in (await it.bodies("label")).values()) == sorted(
            label["id"] for label in it.sim.extras.listed(found, "labels")
        )


async def test_a_workflow_run_in_progress_is_read_again_until_it_is_completed(tmp_path: Path, embedded_url: str):
    shape: dict[str, Any] = {"repositories": 1, "extras": LONG}
    async with deployed(tmp_path, embedded_url, **shape, include=["workflow-runs"]) as it:
        [login] = it.sim.world.logins()
        [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
        number = it.sim.extras.add(found, "workflow_runs", is_open=True)
        await it.collect(login)
        for _ in range(120):  # onto the second page
            it.sim.extras.add(found, "workflow_runs")
        await it.collect(login)
        it.sim.extras.change(found, "workflow_runs", number)
        it.sim.extras.add(found, "workflow_runs")
        assert await _cost(it, login) == 2, "two pages down to the run that was in progress"

        states = {body["run_number"]: body["status"] for body in (await it.bodies("workflow_run")).values()}
        assert states[number] == "completed"
        assert len(states) == LONG + 122


async def test_a_workflow_run_in_progress_below_the_first_page_is_read_again_without_newer_ones(
    tmp_path: Path, embedded_url: str
):
    shape: dict[str, Any] = {"repositories": 1, "extras": 5}
    async with deployed(tmp_path, embedded_url, **shape, include=["workflow-runs"]) as it:
        [login] = it.sim.world.logins()
        [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
        number = it.sim.extras.add(found, "workflow_runs", is_open=True)
        for _ in range(120):  # onto the second page
            it.sim.extras.add(found, "workflow_runs")
        await it.collect(login)
        it.sim.extras.change(found, "workflow_runs", number)
        assert await _cost(it, login) == 2, "the first page is the same, and the run is on the second"

        states = {body["run_number"]: body["status"] for body in (await it.bodies("workflow_run")).values()}
        assert states[number] == "completed"
        assert await _cost(it, login) <= 1
        assert await _cost(it, login) == 0, "unchanged"


def test_the_jobs_of_a_long_list_have_a_limited_number_of_pages():
    job = _task(kinds.REPO_BRANCHES)
    following = job.spec
    for number in range(500):
        page: dict[str, Any] = {"ETag": "a", **link(f"/x?page={number + 2}")}
        [following] = SOURCE.read(job, answer(200, [{"name": f"b{number}"}], page)).follow_ups
        job = follow_up(job, following)
    assert following.page == "page 501"
    assert len(following.params["read"]) == 400


async def test_all_entities_of_an_organization_are_collected(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=5, organizations=1, repositories=1, include=["all"]) as it:
        login = it.sim.world.logins()[0]
        [run] = await it.collect(f"org:{login}")
        assert (run.failed_jobs, run.skipped_items) == (0, 0)
        for declared in REGISTRY.values():
            if declared.document in (None, "event") or declared.group is KindGroup.NAMED:
                continue
            assert await it.bodies(declared.document or ""), f"{declared.name} has documents"

        before = it.sim.report()
        await it.collect(f"org:{login}")
        assert it.spent(before) == dict.fromkeys(it.spent(before), 0), "unchanged"


async def test_statistics_that_are_being_computed_are_requested_again(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=1, include=["code-frequency"]) as it:
        [login] = it.sim.world.logins()
        [run] = await it.collect(login)
        [body] = (await it.bodies("code_frequency")).values()
        assert len(body["weeks"][0]) == 3
        assert (run.failed_jobs, run.calls) == (0, 4), "the profile, the list, 202, and the answer"


async def test_stargazers_are_available_to_collaborators_only(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=2, repositories=1, include=["stargazers", "labels"]) as it:
        login, other = it.sim.world.logins()
        run = await it.end_of(await it.begin(login, pool=other))
        assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
        assert await it.bodies("label")
        [withheld] = await it.parts.database.read(unavailable_of, [run.id])
        assert withheld.reason == "403: Must have push access to view this list."


@pytest.mark.parametrize(
    ("status", "kind", "verdict"),
    [
        (410, kinds.REPO_ISSUE_EVENTS, Verdict.DONE),
        (409, kinds.REPO_BRANCHES, Verdict.DONE),
        (422, kinds.REPO_CODE_FREQUENCY, Verdict.UNAVAILABLE),
        (403, kinds.REPO_LABELS, Verdict.GONE),
    ],
)
def test_a_disabled_feature_is_an_empty_list(status: int, kind: str, verdict: Verdict):
    reading = SOURCE.read(_task(kind), answer(status, {"message": "disabled"}))
    assert reading.verdict is verdict
    assert bool(reading.completed) is (verdict is Verdict.DONE)


def test_names_that_no_store_accepts_are_replaced_and_nulls_are_skipped():
    names = ["main", " padded", "tab\t", "n" * 300]
    listed = [*({"name": name, "commit": {"sha": "a"}} for name in names), None, {"name": None}]
    reading = SOURCE.read(_task(kinds.REPO_BRANCHES), answer(200, listed))
    assert reading.documents[0].id == "7:main"
    assert len({document.id for document in reading.documents}) == 4
    assert len(reading.skipped) == 2
    assert not [each for each in reading.documents if len(each.id) > 100]


def test_simultaneous_stars_of_deleted_accounts_are_different_documents():
    at = {"starred_at": "2026-01-01T00:00:00Z", "user": None}
    page = [at, at, {**at, "user": {"id": 5}}, {**at, "starred_at": "2026-01-02T00:00:00Z"}, at]
    reading = SOURCE.read(_task(kinds.REPO_STARGAZERS), answer(200, page))
    assert [document.id for document in reading.documents] == [
        "7:ghost:2026-01-01T00:00:00Z",
        "7:ghost:2026-01-01T00:00:00Z:2",
        "7:5",
        "7:ghost:2026-01-02T00:00:00Z",
        "7:ghost:2026-01-01T00:00:00Z:3",
    ]


def test_a_list_that_changed_during_a_full_run_marks_nothing_gone():
    two_pages = {"ETag": "a", **link("/x?page=2")}
    first = SOURCE.read(_task(kinds.REPO_LABELS, full=True), answer(200, [{"id": 2}], two_pages))
    second = _next(_task(kinds.REPO_LABELS, full=True), first, answer(200, [{"id": 1}], {"ETag": "b"}))
    assert second.completed == ()
    [again] = second.follow_ups
    task = follow_up(_task(kinds.REPO_LABELS), again)
    assert SOURCE.request(task, "s").headers["If-None-Match"] == "a"

    moved = SOURCE.read(task, answer(200, [{"id": 3}], {**two_pages, "ETag": "c"}))
    assert (moved.completed, moved.follow_ups) == ((), ())
    still = SOURCE.read(task, answer(304, None, {"ETag": "a"}))
    ended = _next(task, still, answer(304, None, {"ETag": "b"}))
    assert [listing.kind for listing in ended.completed] == ["label"]


def test_etags_of_another_credential_are_not_sent():
    left = Cursor(cursor='{"pages":[{"etag":"a"}]}', etag="a", credential="eve")
    assert "If-None-Match" not in SOURCE.request(_task(kinds.REPO_LABELS, cursor=left), "s").headers


def _task(kind: str, cursor: Cursor | None = None, **options: Any) -> Task:
    state = {"repository": {"id": HELLO.id, "full_name": HELLO.full_name}, **options}
    spec = JobSpec(kind=kind, resource=HELLO.resource, params=state, owner="octocat")
    return Task(spec=spec, run_id=5, user_id="octocat", credential="octocat", cursor=cursor)


def _next(before: Task, reading: Reading, answered: Any) -> Reading:
    [spec] = reading.follow_ups
    return SOURCE.read(follow_up(before, spec), answered)


def test_lists_of_organizations_start_with_the_run():
    options = {"include": ["members", "teams", "labels"]}
    specs = SOURCE.first_jobs(parse_subject("org:github").with_options(options))
    assert {spec.kind for spec in specs} == {kinds.USER_BASIC, kinds.ORG_MEMBERS, kinds.ORG_TEAMS}
